"""Authentication: the SASL exchange, and the SCRAM credentials of users."""

from typing import Annotated

from broker.protocol.request import Request
from broker.protocol.schema import Bytes, Int8, Int16, Int32, Int64, Message, SecretMessage, ServedApi, String, v

# ---- SaslHandshake (17): selects the mechanism of the authentication (KIP-43, KIP-152).


class SaslHandshakeRequest(Request["SaslHandshakeResponse"]):
    """From version 1 on SaslAuthenticate carries the tokens. In version 0 each is a bare frame."""

    API = ServedApi(17, v("0-1"), operation="none")

    mechanism: String = ""


class SaslHandshakeResponse(Message):
    error_code: Int16 = 0
    mechanisms: list[String] = []


# ---- SaslAuthenticate (36): one step of a SASL exchange (KIP-152, KIP-368).


class SaslAuthenticateRequest(SecretMessage, Request["SaslAuthenticateResponse"]):
    API = ServedApi(36, v("0-2"), v("2+"), operation="none")

    auth_bytes: Bytes = b""


class SaslAuthenticateResponse(SecretMessage):
    """`session_lifetime_ms` 0: the session does not expire."""

    error_code: Int16 = 0
    error_message: String | None = ""
    auth_bytes: Bytes = b""
    session_lifetime_ms: Annotated[Int64, v("1+")] = 0


# ---- DescribeUserScramCredentials (50): which credentials users have (KIP-554), never their content.


class UserName(Message):
    name: String = ""


class DescribeUserScramCredentialsRequest(Request["DescribeUserScramCredentialsResponse"]):
    """Without users: all users."""

    API = ServedApi(50, v("0"), v("0+"), operation="DESCRIBE")

    users: list[UserName] | None = []


class CredentialInfo(Message):
    mechanism: Int8 = 0
    iterations: Int32 = 0


class DescribeUserScramCredentialsResult(Message):
    user: String = ""
    error_code: Int16 = 0
    error_message: String | None = ""
    credential_infos: list[CredentialInfo] = []


class DescribeUserScramCredentialsResponse(Message):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = ""
    results: list[DescribeUserScramCredentialsResult] = []


# ---- AlterUserScramCredentials (51): passwords, salted by the client before they are sent (KIP-554).


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


class AlterUserScramCredentialsRequest(Request["AlterUserScramCredentialsResponse"]):
    API = ServedApi(51, v("0"), v("0+"), operation="ALTER")

    deletions: list[ScramCredentialDeletion] = []
    upsertions: list[ScramCredentialUpsertion] = []


class AlterUserScramCredentialsResult(Message):
    user: String = ""
    error_code: Int16 = 0
    error_message: String | None = ""


class AlterUserScramCredentialsResponse(Message):
    throttle_time_ms: Int32 = 0
    results: list[AlterUserScramCredentialsResult] = []
