"""The content of a node's image. A change here, or in `guest/`, `initrd/` and `box/`, makes another image."""

SUITE = "bookworm"
DEBIAN_ARCHITECTURE = "amd64"
PYTHON = "3.11"  # the suite's
MACHINE = "x86_64"

PACKAGES = (
    "busybox-static",
    "chrony",
    "dmsetup",
    "e2fsprogs",
    "iproute2",
    "iputils-ping",
    "kmod",
    "linux-image-cloud-amd64",
    "nftables",
    "openssh-server",
    "procps",
    "python3",
    "sudo",
    "systemd-sysv",
    "xfsprogs",
)
# Options of an image (`brownout image build --with java`).
OPTIONS = {"java": ("openjdk-17-jre-headless",)}
JAVA = 17
# Files that dpkg does not unpack.
EXCLUDED_PATHS = (
    "/usr/share/doc/*",
    "/usr/share/info/*",
    "/usr/share/locale/*",
    "/usr/share/man/*",
    "/usr/share/lintian/*",
    "/usr/share/bug/*",
    # Names of devices for udev, which does not run here.
    "/lib/udev/hwdb.d/*",
    "/usr/lib/udev/hwdb.d/*",
    # Only xfs_scrub uses it, and it is a tenth of the image's size.
    "/usr/lib/x86_64-linux-gnu/libicudata.so.*",
)
# Files of the installation that no node needs.
REMOVED_PATHS = (
    "boot/*",
    "initrd.img*",
    "vmlinuz*",
    "etc/ssh/ssh_host_*",
    "etc/apt/sources.list.d/*",
    "etc/apt/apt.conf.d/99mmdebstrap",
    "etc/dpkg/dpkg.cfg.d/99mmdebstrap",
    "etc/motd",
    "usr/lib/udev/hwdb.bin",
    # Everything but perl-base, which Debian's own scripts use; the rest came with Debian's initrd tools.
    "usr/lib/x86_64-linux-gnu/libperl.so.*",
    "usr/lib/x86_64-linux-gnu/perl",
    "usr/share/perl",
    "var/cache/apt/*.bin",
    "var/cache/debconf/*-old",
    "var/lib/apt/lists/*",
    "var/lib/dpkg/*-old",
    "var/log/*.log",
    "var/log/apt",
)

# Kernel modules by the start of their path under kernel/; their dependencies are added.
MODULES = (
    "crypto/",
    "drivers/block/loop",
    "drivers/block/null_blk",
    "drivers/block/virtio_blk",
    "drivers/char/hw_random/virtio-rng",
    "drivers/md/dm-",
    "drivers/net/dummy",
    "drivers/net/ifb",
    "drivers/net/net_failover",
    "drivers/net/veth",
    "drivers/net/virtio_net",
    "drivers/virtio/",
    "drivers/watchdog/softdog",
    "fs/autofs/",
    "fs/overlayfs/",
    "fs/xfs/",
    "lib/",
    "net/8021q/",
    "net/bridge/",
    "net/core/",
    "net/ipv4/",
    "net/ipv6/",
    "net/netfilter/",
    "net/packet/",
    "net/sched/",
    "net/unix/",
)
# Modules that a virtual machine needs to find its root disk, and its network, which would take longer to find later.
INITRD_MODULES = ("virtio_pci", "virtio_blk", "virtio_net", "virtio-rng")

# Units that a node without consoles, users and removable devices does not need: each costs time at every boot.
MASKED_UNITS = (
    "apt-daily-upgrade.timer",
    "apt-daily.timer",
    "chrony-wait.service",
    "dev-hugepages.mount",
    "dev-mqueue.mount",
    "dpkg-db-backup.timer",
    "e2scrub_all.timer",
    "e2scrub_reap.service",
    "fstrim.timer",
    "getty.target",
    "getty@tty1.service",
    "initrd-cleanup.service",
    "kmod-static-nodes.service",
    "ldconfig.service",
    "modprobe@configfs.service",
    "modprobe@dm_mod.service",
    "modprobe@drm.service",
    "modprobe@efi_pstore.service",
    "modprobe@fuse.service",
    "modprobe@loop.service",
    "nftables.service",
    "proc-sys-fs-binfmt_misc.automount",
    "serial-getty@ttyS0.service",
    "sys-fs-fuse-connections.mount",
    "sys-kernel-config.mount",
    "sys-kernel-debug.mount",
    "sys-kernel-tracing.mount",
    "systemd-ask-password-console.path",
    "systemd-ask-password-wall.path",
    "systemd-binfmt.service",
    "systemd-boot-system-token.service",
    "systemd-firstboot.service",
    "systemd-journal-catalog-update.service",
    "systemd-hwdb-update.service",
    "systemd-journal-flush.service",
    "systemd-logind.service",
    "systemd-machine-id-commit.service",
    "systemd-modules-load.service",
    "systemd-network-generator.service",
    "systemd-networkd.service",
    "systemd-networkd.socket",
    "systemd-pcrphase-sysinit.service",
    "systemd-pcrphase.service",
    "systemd-pstore.service",
    "systemd-random-seed.service",
    "systemd-remount-fs.service",
    "systemd-repart.service",
    "systemd-rfkill.socket",
    "systemd-sysusers.service",
    "systemd-timesyncd.service",
    "systemd-tmpfiles-clean.timer",
    "systemd-tmpfiles-setup-dev.service",
    "systemd-udev-settle.service",
    "systemd-udev-trigger.service",
    "systemd-udevd-control.socket",
    "systemd-udevd-kernel.socket",
    "systemd-udevd.service",
    "systemd-update-done.service",
    "systemd-update-utmp-runlevel.service",
    "systemd-update-utmp.service",
    "systemd-user-sessions.service",
)
# What systemd runs at each start to find more units; a node keeps only the one that reads fstab.
MASKED_GENERATORS = (
    "systemd-bless-boot-generator",
    "systemd-cryptsetup-generator",
    "systemd-debug-generator",
    "systemd-getty-generator",
    "systemd-gpt-auto-generator",
    "systemd-hibernate-resume-generator",
    "systemd-integritysetup-generator",
    "systemd-rc-local-generator",
    "systemd-run-generator",
    "systemd-system-update-generator",
    "systemd-sysv-generator",
    "systemd-veritysetup-generator",
)
# Started at boot: unit -> what wants it.
ENABLED_UNITS = {
    "/etc/systemd/system/brownout-network.service": "sysinit.target",
    "/lib/systemd/system/ssh.service": "multi-user.target",
}
# The playbook decides whether a clock is corrected, and by which service.
DISABLED_UNITS = ("chrony.service",)

USER = "vagrant"
# The key that every public Vagrant box accepts. Its private half is public, too: boxes belong on private networks.
USER_KEY = (
    "ssh-rsa AAAAB3NzaC1yc2EAAAABIwAAAQEA6NF8iallvQVp22WDkTkyrtvp9eWW6A8YVr+kz4TjGYe7gHzIw+niNltGEFHzD8+v1I2YJ6oXevct1Y"
    "eS0o9HZyN1Q9qgCgzUFtdOKLv6IedplqoPkcmF0aYet2PkEDo3MlTBckFXPITAMzF8dJSIFo9D8HfdOV0IAdx4O7PtixWKn5y2hMNG0zQPyUecp4pzC6"
    "kivAIhyfHilFR61RGL+GPXQ2MWZWFYbAGjyiYJnAmCP3NOTd0jMZEnDkbUvxhMmBYSdETk1rRgm+R4LOzFUGaHqHDLKLX+FIPKcF96hrucXzcWyLbIb"
    "EgE98OHlnVYCzRdK8jlqm8tehUc9c9WhQ== vagrant insecure public key"
)

DISK_LABEL = "brownout-root"
DISK_BYTES = 2 << 30
BOX_NAME = "brownout/node"
