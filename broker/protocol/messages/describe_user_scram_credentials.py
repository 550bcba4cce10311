"""DescribeUserScramCredentials (50): which credentials users have (KIP-554), never their content."""

from __future__ import annotations

from broker.protocol.schema import Int8, Int16, Int32, Message, ServedApi, String, v


class UserName(Message):
    name: String = ""


class DescribeUserScramCredentialsRequest(Message):
    """Without users: all users."""

    API = ServedApi(50, v("0"), operation="DESCRIBE")
    VERSIONS = v("0")
    FLEXIBLE = v("0+")

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
    VERSIONS = v("0")
    FLEXIBLE = v("0+")

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = ""
    results: list[DescribeUserScramCredentialsResult] = []
