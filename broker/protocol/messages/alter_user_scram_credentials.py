"""AlterUserScramCredentials (51): passwords, salted by the client before they are sent (KIP-554)."""

from __future__ import annotations

from broker.protocol.schema import Bytes, Int8, Int16, Int32, Message, SecretMessage, ServedApi, String, v


class ScramCredentialDeletion(Message):
    name: String = ""
    mechanism: Int8 = 0


class ScramCredentialUpsertion(SecretMessage):
    """Knowledge of `salted_password` is sufficient to authenticate as the user."""

    name: String = ""
    mechanism: Int8 = 0
    iterations: Int32 = 0
    salt: Bytes = b""
    salted_password: Bytes = b""


class AlterUserScramCredentialsRequest(Message):
    API = ServedApi(51, v("0"), operation="ALTER")
    VERSIONS = v("0")
    FLEXIBLE = v("0+")

    deletions: list[ScramCredentialDeletion] = []
    upsertions: list[ScramCredentialUpsertion] = []


class AlterUserScramCredentialsResult(Message):
    user: String = ""
    error_code: Int16 = 0
    error_message: String | None = ""


class AlterUserScramCredentialsResponse(Message):
    VERSIONS = v("0")
    FLEXIBLE = v("0+")

    throttle_time_ms: Int32 = 0
    results: list[AlterUserScramCredentialsResult] = []
