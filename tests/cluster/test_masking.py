"""What is secret is masked, and what is not stays readable."""

from __future__ import annotations

import json

import pytest

from cluster.masking import Mask, is_secret_name, secrets_of


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("redis://user:pa/s@s@host:6379/0", "redis://***@host:6379/0"),
        ("at http://host:80/path, still", "at http://host:80/path, still"),
        ("sk-0123abcd-SECRETSECRET", "sk-***"),
        ("hf_abcdefghij", "hf_***"),
        ("Authorization: Bearer abc.def.ghi", "Authorization: *** ***"),
        ('{"join_token": "x y", "b": 1}', '{"join_token": "***", "b": 1}'),
        ("password='a b' rest", "password='***' rest"),
        ("?api_key=abc&n=1", "?api_key=***&n=1"),
        ('"{\\"password\\": \\"abc\\"}"', '"{\\"password\\": \\"***\\"}"'),
        ("prompt_tokens=17 max_tokens: 3", "prompt_tokens=17 max_tokens: 3"),
        ("prefill_token_ms=0.5 token_ids", "prefill_token_ms=0.5 token_ids"),
        ("tokenizer: abc, secretary", "tokenizer: abc, secretary"),
        ("vllm_key_file=/run/key", "vllm_key_file=/run/key"),
        ("-----BEGIN PRIVATE KEY-----\nabc\n-----END PRIVATE KEY-----\nx", "***\nx"),
        ("-----BEGIN PRIVATE KEY-----\nabc", "***"),
    ],
)
def test_a_text(text: str, masked: str) -> None:
    assert Mask().text(text) == masked


def test_what_is_known_is_masked_however_it_is_written() -> None:
    mask = Mask(['pass"word ü', "tiny"])
    told = [
        mask.text('x pass"word ü y'),
        mask.text(json.dumps({"a": 'pass"word ü'})),
        mask.text("pass%22word%20%C3%BC"),
        mask.text("cGFzcyJ3b3JkIMO8"),
    ]
    assert told == ["x *** y", '{"a": "***"}', "***", "***"]
    assert mask.text("tiny words") == "tiny words", "too short to take words apart for"


def test_data_keeps_its_shape() -> None:
    data = {
        "hf_token": "x",
        "tokens": 3,
        "token_file": "/a",
        "list": [{"password": "y"}],
    }
    assert Mask().data(data) == {
        "hf_token": "***",
        "tokens": 3,
        "token_file": "/a",
        "list": [{"password": "***"}],
    }


def test_secrets_of_an_environment_are_values_of_secret_names_and_userinfo() -> None:
    environ = {"A_TOKEN": "one", "STORE": "redis://me:two@h", "PATH": "/bin", "TOKENS": "5"}
    assert set(secrets_of(environ)) == {"one", "me:two", "two"}
    assert not is_secret_name("join_token_file") and is_secret_name("AWS_SECRET_ACCESS_KEY")
