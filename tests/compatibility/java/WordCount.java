import java.time.Duration;
import java.util.Arrays;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;

/**
 * Counts words, at least once: WordCount BOOTSTRAP INPUT OUTPUT STATE-DIRECTORY. Prints each state of the client and
 * each error that ends it; ends when its standard input does.
 */
public class WordCount {
  public static void main(String[] arguments) throws Exception {
    Properties settings = new Properties();
    settings.put("bootstrap.servers", arguments[0]);
    settings.put("application.id", "word-count");
    settings.put("default.key.serde", Serdes.String().getClass());
    settings.put("default.value.serde", Serdes.String().getClass());
    settings.put("auto.offset.reset", "earliest");
    settings.put("commit.interval.ms", "200");
    settings.put("state.dir", arguments[3]);
    StreamsBuilder builder = new StreamsBuilder();
    builder.<String, String>stream(arguments[1])
        .flatMapValues(line -> Arrays.asList(line.split(" ")))
        .groupBy((key, word) -> word)
        .count(Materialized.as("counts"))
        .toStream()
        .to(arguments[2], Produced.with(Serdes.String(), Serdes.Long()));
    KafkaStreams streams = new KafkaStreams(builder.build(), settings);
    CountDownLatch ended = new CountDownLatch(1);
    streams.setUncaughtExceptionHandler(error -> {
      System.out.println("UNCAUGHT " + error);
      return StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
    });
    streams.setStateListener((state, before) -> {
      System.out.println("STATE " + state);
      if (state == KafkaStreams.State.ERROR) {
        ended.countDown();
      }
    });
    streams.start();
    Thread waiting = new Thread(() -> {
      try {
        while (System.in.read() >= 0) { }
      } catch (java.io.IOException error) {
        System.out.println("INPUT " + error);
      }
      ended.countDown();
    });
    waiting.setDaemon(true);
    waiting.start();
    ended.await();
    streams.close(Duration.ofSeconds(30));
    System.exit(0);
  }
}
