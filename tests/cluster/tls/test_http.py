"""A listener for long: the certificates of its time, and handshakes that are counted."""

from __future__ import annotations

import shutil
import ssl
from pathlib import Path

import pytest

from cluster.tls import http as tls_http
from cluster.tls.files import CertificateFiles
from cluster.tls.http import ListenerContext
from cluster.tls.watched import LOOK_INTERVAL_S, WatchedCertificates
from tests.cluster.tls.authority import Authority
from tests.cluster.tls.test_watched import Time, Told

NAME = "127.0.0.1"


class Ends:
    """A connection in memory: ours, and a client's that takes any certificate."""

    def __init__(self, listener: ssl.SSLContext) -> None:
        client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        client.check_hostname, client.verify_mode = False, ssl.CERT_NONE
        there, here = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.server = listener.wrap_bio(here, there, server_side=True)
        self.client = client.wrap_bio(there, here)

    def shake_hands(self) -> bytes:
        """The certificate that was shown."""
        waiting = [self.client, self.server]
        for _ in range(8):
            for each in tuple(waiting):
                try:
                    each.do_handshake()
                except ssl.SSLWantReadError:
                    continue
                waiting.remove(each)
        assert waiting == []
        shown = self.client.getpeercert(binary_form=True)
        assert shown is not None
        return shown


def has_room(_num_handshakes: int) -> bool:
    return True


def files(folder: Path) -> CertificateFiles:
    return CertificateFiles(folder / "cert.pem", folder / "key.pem")


def test_a_rotation_that_stops_half_way_leaves_the_last_good_certificate(tmp_path: Path) -> None:
    authority, time = Authority(), Time()
    own = authority.fill(tmp_path / "own", NAME)
    known = WatchedCertificates(files(own), clock=time)
    listener = ListenerContext(known, has_room)
    first = Ends(listener).shake_hands()
    authority.fill(own, NAME)
    time.now_s += LOOK_INTERVAL_S
    known.current()  # another port, of gRPC, has looked and taken them
    shutil.copy(authority.fill(tmp_path / "later", NAME) / "cert.pem", own / "cert.pem")
    second = Ends(listener).shake_hands()
    assert second != first
    for _ in range(3):
        time.now_s += LOOK_INTERVAL_S
        assert Ends(listener).shake_hands() == second


def test_a_handshake_counts_until_it_is_done_or_cut_off(tmp_path: Path) -> None:
    own = Authority().fill(tmp_path, NAME)
    listener = ListenerContext(WatchedCertificates(files(own)), has_room)
    done, cut = Ends(listener), Ends(listener)
    assert listener.num_handshakes == 2
    done.shake_hands()
    assert listener.num_handshakes == 1
    del cut
    assert listener.num_handshakes == 0


def test_a_handshake_without_room_fails_at_once_and_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = Told()
    monkeypatch.setattr(tls_http, "_log", told)
    own = Authority().fill(tmp_path, NAME)
    listener = ListenerContext(WatchedCertificates(files(own)), lambda under_way: under_way < 1)
    first = Ends(listener)
    for _ in range(2):
        with pytest.raises(ssl.SSLError, match="as many connections and handshakes"):
            Ends(listener).server.do_handshake()
    assert listener.num_handshakes == 1
    first.shake_hands()
    Ends(listener).shake_hands()
    assert told.reasons == ["the port has as many connections and handshakes as it takes"]
