"""What is secret is redacted, and what is not stays readable."""

from __future__ import annotations

import json

import pytest

from cluster.redaction import Redactor, is_secret_name, secrets_of


@pytest.mark.parametrize(
    ("text", "redacted"),
    [
        ("redis://user:pa/s@s@host:6379/0", "redis://***@host:6379/0"),
        ("at http://host:80/path, still", "at http://host:80/path, still"),
        ("sk-0123abcd-SECRETSECRET", "sk-***"),
        ("hf_abcdefghij", "hf_***"),
        ("Authorization: Bearer abc.def.ghi", "Authorization: ***"),
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
        ("serve --join-token V --port 1", "serve --join-token *** --port 1"),
        ("--vllm-key V --vllm-key-file F", "--vllm-key *** --vllm-key-file F"),
        ('["--join-token", "V"]', '["--join-token", "***"]'),
        ("- --join-token\n- V", "- --join-token\n- ***"),
        ("- name: HF_TOKEN\n  value: a b\n- x", "- name: HF_TOKEN\n  value: ***\n- x"),
        ('{"name":"HF_TOKEN","value":"V"}', '{"name":"HF_TOKEN","value":***}'),
        ("private_key=V access_key=W", "private_key=*** access_key=***"),
        ('"privateKey": "V", "secretKey": "W"', '"privateKey": "***", "secretKey": "***"'),
        ("Cookie: splitserve_page_9=V; b=c\nnext", "Cookie: ***\nnext"),
        ("authorization: Token V", "authorization: ***"),
        ("password: a b c\nnext", "password: ***\nnext"),
        ("password=ab,cd next", "password=*** next"),
        ('"password": "a\\"b", "c": 1', '"password": "***", "c": 1'),
        ('"password": "cut of', '"password": "***"'),
        ("OTEL_EXPORTER_OTLP_HEADERS=x-key=V,b=W next", "OTEL_EXPORTER_OTLP_HEADERS=*** next"),
        ("OTEL_EXPORTER_OTLP_TRACES_HEADERS: a=V, b=W", "OTEL_EXPORTER_OTLP_TRACES_HEADERS: ***"),
        ('"otlp_headers": "x-honeycomb-team=V"', '"otlp_headers": "***"'),
        (
            "- name: OTEL_EXPORTER_OTLP_HEADERS\n  value: k=V",
            "- name: OTEL_EXPORTER_OTLP_HEADERS\n  value: ***",
        ),
        ("num_headers_read=3 headers=2", "num_headers_read=3 headers=2"),
    ],
)
def test_a_text(text: str, redacted: str) -> None:
    assert Redactor().text(text) == redacted


def test_what_is_known_is_redacted_however_it_is_written() -> None:
    redactor = Redactor(['pass"word ü', "tiny"])
    told = [
        redactor.text('x pass"word ü y'),
        redactor.text(json.dumps({"a": 'pass"word ü'})),
        redactor.text("pass%22word%20%C3%BC"),
        redactor.text("cGFzcyJ3b3JkIMO8"),
    ]
    assert told == ["x *** y", '{"a": "***"}', "***", "***"]
    assert redactor.text("tiny words") == "tiny words", "too short to take words apart for"


def test_data_keeps_its_shape() -> None:
    data = {
        "hf_token": "x",
        "tokens": 3,
        "token_file": "/a",
        "list": [{"password": "y"}],
    }
    assert Redactor().data(data) == {
        "hf_token": "***",
        "tokens": 3,
        "token_file": "/a",
        "list": [{"password": "***"}],
    }


def test_headers_of_an_exporter_are_redacted_whole_and_wherever_their_text_stands() -> None:
    environ = {"OTEL_EXPORTER_OTLP_HEADERS": "x-team=abcdef,y=2"}
    assert list(secrets_of(environ)) == ["x-team=abcdef,y=2"]
    assert Redactor().data(environ) == {"OTEL_EXPORTER_OTLP_HEADERS": "***"}
    assert Redactor(secrets_of(environ)).text("sent x-team=abcdef,y=2 off") == "sent *** off"


def test_secrets_of_an_environment_are_values_of_secret_names_and_userinfo() -> None:
    environ = {"A_TOKEN": "one", "STORE": "redis://me:two@h", "PATH": "/bin", "TOKENS": "5"}
    assert set(secrets_of(environ)) == {"one", "me:two", "two"}
    assert not is_secret_name("join_token_file") and is_secret_name("AWS_SECRET_ACCESS_KEY")


def test_every_text_below_a_secret_s_name_is_redacted_and_so_is_what_follows_its_flag() -> None:
    told = Redactor().data(
        {
            "env": [{"name": "HF_TOKEN", "value": "V"}, {"name": "PORT", "value": "8000"}],
            "join_token": {"value": "V", "others": ["W", 3]},
            "args": ["--join-token", "V", "--port", "1"],
        }
    )
    assert told == {
        "env": [{"name": "HF_TOKEN", "value": "***"}, {"name": "PORT", "value": "8000"}],
        "join_token": {"value": "***", "others": ["***", 3]},
        "args": ["--join-token", "***", "--port", "1"],
    }


@pytest.mark.timeout(60)
@pytest.mark.parametrize("piece", ["a", "token", "a.", "://", "a1", "--token-", '"', "name:"])
def test_a_megabyte_without_a_space_is_a_matter_of_seconds(piece: str) -> None:
    """It was one of hours: every character began a search to the end."""
    text = piece * (2**20 // len(piece))
    assert Redactor().text(text)
