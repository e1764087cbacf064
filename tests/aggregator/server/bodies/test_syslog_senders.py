"""Syslog from real senders: where each part of a message goes, and that none is lost.

Includes cases from rsyslog's tests of its RFC 3164 parser and from the Rust library syslog_loose, reworded.
"""

from __future__ import annotations

import datetime as dt
import time

import pytest
from effort import examples
from hypothesis import example, given
from hypothesis import strategies as st

from aggregator.server.bodies.syslog import read_message

ZONE = dt.timezone(dt.timedelta(hours=1))
NOW = dt.datetime(2026, 3, 1, 12, tzinfo=ZONE)
PEER = "10.0.0.9"
_UTC = dt.UTC


def at(*parts: int, zone: dt.tzinfo = ZONE) -> dt.datetime:
    return dt.datetime(*parts, tzinfo=zone)


def hours(count: int) -> dt.tzinfo:
    return dt.timezone(dt.timedelta(hours=count))


NOVEMBER = at(2025, 11, 22, 20)
# sender; message; host, app; time; message text; other fields besides facility, severity, level
SENDERS = [
    ("haproxy", "<134>Nov 22 20:00:00 haproxy[123]: Proxy started.", (PEER, "haproxy"), NOVEMBER, "Proxy started.",
     {"pid": "123"}),
    ("docker", "<30>Nov 22 20:00:00 4c6de1f3a2b1[123]: msg", (PEER, "4c6de1f3a2b1"), NOVEMBER, "msg", {"pid": "123"}),
    ("docker-number", "<30>Nov 22 20:00:00 123456789012[7]: m", (PEER, "123456789012"), NOVEMBER, "m", {"pid": "7"}),
    ("docker-3164", "<30>Nov 22 20:00:00 web app[123]: msg", ("web", "app"), NOVEMBER, "msg", {"pid": "123"}),
    ("docker-5424micro", "<30>1 2026-03-01T08:00:00.123456Z web app 123 app - msg", ("web", "app"),
     at(2026, 3, 1, 8, 0, 0, 123456, zone=_UTC), "msg", {"pid": "123", "msgid": "app"}),
    ("nginx-nohostname", "<190>Nov 22 20:00:00 nginx: 127.0.0.1 - - [x]", (PEER, "nginx"), NOVEMBER,
     "127.0.0.1 - - [x]", {}),
    ("busybox", "<13>Nov 22 20:00:00 root: text", (PEER, "root"), NOVEMBER, "text", {}),
    ("busybox-mark", "<46>Nov 22 20:00:00 web -- MARK --", ("web", None), NOVEMBER, "-- MARK --", {}),
    ("logger-3164", "<13>Nov 22 20:00:00 web root: text", ("web", "root"), NOVEMBER, "text", {}),
    ("logger-5424", '<13>1 2026-03-01T08:00:00.123456+01:00 web root - - [timeQuality tzKnown="1" isSynced="1"] text',
     ("web", "root"), at(2026, 3, 1, 8, 0, 0, 123456), "text",
     {"timeQuality.tzKnown": "1", "timeQuality.isSynced": "1"}),
    ("journald", "<30>Nov 22 20:00:00 web systemd[1]: Started x.", ("web", "systemd"), NOVEMBER, "Started x.",
     {"pid": "1"}),
    ("no-time", "<30>systemd[1]: Started x.", (PEER, "systemd"), NOW, "Started x.", {"pid": "1"}),
    ("macos", "<13>Nov 22 20:00:00 Mac com.apple.xpc.launchd[1] (com.apple.x[9]): Service exited",
     ("Mac", "com.apple.xpc.launchd"), NOVEMBER, "(com.apple.x[9]): Service exited", {"pid": "1"}),
    ("kernel", "<5>Nov 22 20:00:00 web kernel: [  12.34] x", ("web", "kernel"), NOVEMBER, "[  12.34] x", {}),
    ("bsd", "<13>Nov 22 20:00:00 last message repeated 3 times", (PEER, None), NOVEMBER,
     "last message repeated 3 times", {}),
    ("aix", "<13>Nov 22 20:00:00 Message forwarded from aix1: sshd[12]: text", ("aix1", "sshd"), NOVEMBER, "text",
     {"pid": "12"}),
    ("syslog-ng", "<13>Feb 13 20:07:26 74794bfb6795 root[8539]: i am foobar", ("74794bfb6795", "root"),
     at(2026, 2, 13, 20, 7, 26), "i am foobar", {"pid": "8539"}),
    ("syslog-ng-iso", "<13>2026-02-13T20:07:26+00:00 web root[1]: x", ("web", "root"),
     at(2026, 2, 13, 20, 7, 26, zone=_UTC), "x", {"pid": "1"}),
    ("syslog-ng-full", "<13>2026 Feb 13 20:07:26.123456 web root[1]: x", ("web", "root"),
     at(2026, 2, 13, 20, 7, 26, 123456), "x", {"pid": "1"}),
    ("six-digits", "<13>Nov 22 20:00:00.123456 web root: x", ("web", "root"), at(2025, 11, 22, 20, 0, 0, 123456), "x",
     {}),
    ("no-zone", "<13>2026-03-01T08:00:00.25 web root: x", ("web", "root"), at(2026, 3, 1, 8, 0, 0, 250000), "x", {}),
    ("no-zone-5424", "<13>1 2026-03-01T08:00:00 web root - - - x", ("web", "root"), at(2026, 3, 1, 8), "x", {}),
    ("space-in-time", "<13>2026-03-01 08:00:00,5 web root: x", ("web", "root"), at(2026, 3, 1, 8, 0, 0, 500000), "x",
     {}),
    ("utf8-host", "<13>1 2026-03-01T08:00:00Z größe app - - - x", ("größe", "app"), at(2026, 3, 1, 8, zone=_UTC), "x",
     {}),
    ("long-app", f"<13>1 2026-03-01T08:00:00Z h {'a' * 200} - - - x", ("h", "a" * 200),
     at(2026, 3, 1, 8, zone=_UTC), "x", {}),
    ("long-app-old", f"<13>Nov 22 20:00:00 h {'a' * 200}[1]: x", ("h", "a" * 200), NOVEMBER, "x", {"pid": "1"}),
    ("pid-in-app", "<13>1 2026-03-01T08:00:00Z h app[12] - - - x", ("h", "app"), at(2026, 3, 1, 8, zone=_UTC), "x",
     {"pid": "12"}),
    ("space-after-priority", "<167> Mar  7 19:06:53 example tag: text", ("example", "tag"),
     at(2025, 3, 7, 19, 6, 53), "text", {}),
    ("space-after-priority-5424", "<13> 1 2026-03-01T08:00:00Z h a - - - x", ("h", "a"),
     at(2026, 3, 1, 8, zone=_UTC), "x", {}),
    ("line-ends-before", "\n   <13>Nov 22 20:00:00 h a: x", ("h", "a"), NOVEMBER, "x", {}),
    ("ipv6-host", "<13>Nov 22 20:00:00 2001:db8::1 app: x", ("2001:db8::1", "app"), NOVEMBER, "x", {}),
    ("brackets", "<13>Nov 22 20:00:00 [192.0.2.1] app: x", ("192.0.2.1", "app"), NOVEMBER, "x", {}),
    ("no-host", "<13>Nov 22 20:00:00 - app: x", (PEER, "app"), NOVEMBER, "x", {}),
    ("json", '<13>Nov 22 20:00:00 {"a": 1}', (PEER, None), NOVEMBER, '{"a": 1}', {}),
    ("json-no-time", '<13>{"a": 1}', (PEER, None), NOW, '{"a": 1}', {}),
    ("url", "<13>Nov 22 20:00:00 web http://x/y", ("web", None), NOVEMBER, "http://x/y", {}),
    ("number", "<13>Nov 22 20:00:00 web 12: x", ("web", None), NOVEMBER, "12: x", {}),
    ("unifi", "<30>Nov 22 20:00:00 U7PG2,788a20,v4.3.20: hostapd: x", (PEER, "U7PG2,788a20,v4.3.20"), NOVEMBER,
     "hostapd: x", {}),
    ("juniper", "<28>Nov 22 20:00:00 router1 mgd[2347]: UI_DBASE_LOGOUT_EVENT: x", ("router1", "mgd"), NOVEMBER,
     "UI_DBASE_LOGOUT_EVENT: x", {"pid": "2347"}),
    ("juniper-year", "<28>Nov 22 20:00:00 2024  router1 mgd[2347]: x", ("router1", "mgd"), at(2024, 11, 22, 20), "x",
     {"pid": "2347"}),
    ("juniper-structured", '<165>1 2026-03-01T08:00:00.719Z r mgd 3046 UI [junos@2636.1.1.1.2.18 username="u"] x',
     ("r", "mgd"), at(2026, 3, 1, 8, 0, 0, 719000, zone=_UTC), "x",
     {"pid": "3046", "msgid": "UI", "junos@2636.1.1.1.2.18.username": "u"}),
    ("fortigate", '<189>date=2026-02-28 time=20:00:00 devname="FG" devid="x" tz="+0200" level="notice" msg="a b"',
     ("FG", None), at(2026, 2, 28, 20, zone=hours(2)),
     'date=2026-02-28 time=20:00:00 devname="FG" devid="x" tz="+0200" level="notice" msg="a b"', {}),
    ("cisco-ios", "<189>29: *Mar  1 18:48:50.483 UTC: %SYS-5-CONFIG_I: Configured from console by vty2 (10.34.195.36)",
     (PEER, "SYS"), at(2026, 3, 1, 18, 48, 50, 483000, zone=_UTC), "Configured from console by vty2 (10.34.195.36)",
     {"meta.sequenceId": "29", "timeQuality.isSynced": "0", "msgid": "%SYS-5-CONFIG_I"}),
    ("cisco-zone", "<187>237: Sep 16 08:50:47.359 EDT: %SYS-5-CONFIG_I: x", (PEER, "SYS"),
     at(2025, 9, 16, 8, 50, 47, 359000, zone=hours(-4)), "x", {"meta.sequenceId": "237", "msgid": "%SYS-5-CONFIG_I"}),
    ("cisco-odd-zone", "<187>237: Nov 22 20:00:00 OWN: %SYS-5-CONFIG_I: x", (PEER, "SYS"), NOVEMBER, "x",
     {"meta.sequenceId": "237", "msgid": "%SYS-5-CONFIG_I"}),
    ("cisco-origin", "<189>000019: router1: .Nov 22 20:00:00.000: %LINK-3-UPDOWN: x", ("router1", "LINK"), NOVEMBER,
     "x", {"meta.sequenceId": "000019", "timeQuality.isSynced": "0", "msgid": "%LINK-3-UPDOWN"}),
    ("cisco-uptime", "<189>29: 1w2d: %LINK-3-UPDOWN: x", (PEER, "LINK"), NOW, "x",
     {"meta.sequenceId": "29", "uptime": "1w2d", "msgid": "%LINK-3-UPDOWN"}),
    ("cisco-nxos", "<189>: 2024 Nov 22 20:00:00.123 CET: %ETHPORT-5-IF_UP: x", (PEER, "ETHPORT"),
     at(2024, 11, 22, 20, 0, 0, 123000), "x", {"msgid": "%ETHPORT-5-IF_UP"}),
    ("cisco-asa", "<166>Nov 22 2024 20:00:00: %ASA-6-302013: Built", (PEER, "ASA"), at(2024, 11, 22, 20), "Built",
     {"msgid": "%ASA-6-302013"}),
    ("cisco-asa-host", "<166>Nov 22 2024 20:00:00 fw01 : %ASA-6-302013: Built", ("fw01", "ASA"),
     at(2024, 11, 22, 20), "Built", {"msgid": "%ASA-6-302013"}),
    ("cisco-asa-bare", "<166>%ASA-6-302013: Built", (PEER, "ASA"), NOW, "Built", {"msgid": "%ASA-6-302013"}),
    ("cisco-asa-zone", "<166>:Nov 22 20:00:00 PST: %ASA-6-302013: Built", (PEER, "ASA"),
     at(2025, 11, 22, 20, zone=hours(-8)), "Built", {"msgid": "%ASA-6-302013"}),
    ("cisco-xr", "<189>1234: RP/0/RSP0/CPU0:Nov 22 20:00:00.000 UTC: config[6]: x", (PEER, "config"),
     at(2025, 11, 22, 20, zone=_UTC), "x", {"meta.sequenceId": "1234", "node": "RP/0/RSP0/CPU0", "pid": "6"}),
    ("zone-is-a-host", "<13>Nov 22 20:00:00 web: x", (PEER, "web"), NOVEMBER, "x", {}),
]  # fmt: skip
RSYSLOG = [
    ("pix", "<167>Mar  6 16:57:54 172.20.245.8 %PIX-7-710005: UDP request", ("172.20.245.8", "PIX"),
     at(2025, 3, 6, 16, 57, 54), "UDP request", {"msgid": "%PIX-7-710005"}),
    ("pam", "<167>Mar 27 19:06:53 source_server sshd(pam_unix)[12750]: opened", ("source_server", "sshd(pam_unix)"),
     at(2025, 3, 27, 19, 6, 53), "opened", {"pid": "12750"}),
    ("capitals", "<167>AUG 10 22:18:24 host tag This has äöü", ("host", None), at(2025, 8, 10, 22, 18, 24),
     "tag This has äöü", {}),  # here a tag ends with a colon or a process id; rsyslog takes the first word
    ("year-colon", "<167>Mar 7 2008 19:06:53: example tag: text", ("example", "tag"), at(2008, 3, 7, 19, 6, 53),
     "text", {}),
    ("colon", "<167>Mar 7 19:06:53: example tag: text", ("example", "tag"), at(2025, 3, 7, 19, 6, 53), "text", {}),
    ("host-alone", "<14>Jan  6 2009 15:22:26 localhost", ("localhost", None), at(2009, 1, 6, 15, 22, 26), "", {}),
    ("odd-text", '<167>Nov 22 20:00:00 10.321.1.123 05",code=200,b', ("10.321.1.123", None), NOVEMBER,
     '05",code=200,b', {}),
    ("no-priority", "Nov 22 20:00:00 serverX -- MARK --", ("serverX", None), NOVEMBER, "-- MARK --", {}),
    ("space-in-parameter", '<165>1 2003-10-11T22:14:15.003Z h e - ID47 [a@1 iut="3" s= "A"][b@1 c="high"]',
     ("h", "e"), at(2003, 10, 11, 22, 14, 15, 3000, zone=_UTC), "",
     {"msgid": "ID47", "a@1.iut": "3", "a@1.s": "A", "b@1.c": "high"}),
    ("year-behind", "<6>AUG 10 22:18:24 2009  netips-p [audit] user=[*SMS]", ("netips-p", None),
     at(2009, 8, 10, 22, 18, 24), "[audit] user=[*SMS]", {}),
    ("space-at-end", "<14>Nov 22 20:00:00 X4711 ", ("X4711", None), NOVEMBER, "", {}),
    ("time-and-space", "<14>Nov 22 20:00:00 ", (PEER, None), NOVEMBER, "", {}),
    ("time-alone", "<14>Nov 22 20:00:00", (PEER, None), NOVEMBER, "", {}),
    ("iso-host-alone", "<14>2010-08-30T23:00:05Z X4711", ("X4711", None), at(2010, 8, 30, 23, 0, 5, zone=_UTC), "", {}),
    ("hash", "<175>Nov 22 20:00:00 #001 MSWinEventLog 0#011Security", (PEER, None), NOVEMBER,
     "#001 MSWinEventLog 0#011Security", {}),
    ("process-without-colon", "<175>Oct 16 2009 23:47:31 hostname tag[1234] This", ("hostname", "tag"),
     at(2009, 10, 16, 23, 47, 31), "This", {"pid": "1234"}),
    ("no-date", "<27>xapi: [error|xen3] Connection", (PEER, "xapi"), NOW, "[error|xen3] Connection", {}),
    ("at-sign", "<129>Nov 22 20:00:00 Hostn@me2 tag:  x", ("Hostn@me2", "tag"), NOVEMBER, " x", {}),
    ("no-space", "<129>Nov 22 20:00:00 Hostname3 tag:x", ("Hostname3", "tag"), NOVEMBER, "x", {}),
    ("tag-alone", "<129>Nov 22 20:00:00 Hos@name4 tag4:", ("Hos@name4", "tag4"), NOVEMBER, "", {}),
    ("two-spaces", "<129>Nov 22 20:00:00 Hostname1  x", ("Hostname1", None), NOVEMBER, " x", {}),
    ("space-colon", "<129>Nov 22 20:00:00 Hostname4 tag4 :", ("Hostname4", None), NOVEMBER, "tag4 :", {}),
    ("slash", "<167>Nov 22 20:00:00 host1/host2 test: x", ("host1/host2", "test"), NOVEMBER, "x", {}),
    ("slash-5424", '<167>1 2003-03-01T01:00:00.000Z h1/h2 flood - tag [f@32473 N="0"] data', ("h1/h2", "flood"),
     at(2003, 3, 1, 1, zone=_UTC), "data", {"msgid": "tag", "f@32473.N": "0"}),
    ("space-at-start", "<13>1 2019-05-15T11:21:57+03:00 domain.tld tag - - -  x", ("domain.tld", "tag"),
     at(2019, 5, 15, 8, 21, 57, zone=_UTC), " x", {}),
    ("bare-json", '   [{ "c3":3 }]', (PEER, None), NOW, '   [{ "c3":3 }]', {}),
]  # fmt: skip
STAMP = at(2019, 2, 13, 19, 48, 34, zone=_UTC)
SYSLOG_LOOSE = [
    ("haproxy-13", "<133>Jan 13 16:33:35 haproxy[73411]: Proxy started.", (PEER, "haproxy"),
     at(2026, 1, 13, 16, 33, 35), "Proxy started.", {"pid": "73411"}),
    ("origin", '<46>Jan  5 15:33:03 plert rsyslogd:  [origin software="r"] start', ("plert", "rsyslogd"),
     at(2026, 1, 5, 15, 33, 3), ' [origin software="r"] start', {}),  # such data stays text: it is not RFC 5424
    ("two-elements", '<13>1 2019-02-13T19:48:34+00:00 h root 8449 - [m s="1" l="EN"][o ip="192.168.0.1"] foobar',
     ("h", "root"), STAMP, "foobar", {"pid": "8449", "m.s": "1", "m.l": "EN", "o.ip": "192.168.0.1"}),
    ("european", "<46>Jan 5 10:01:00 Übergröße größe: größenordnung", ("Übergröße", "größe"), at(2026, 1, 5, 10, 1),
     "größenordnung", {}),
    ("no-element", "<13>1 2019-02-13T19:48:34+00:00 h root 8449 - [incorrect x] qwerty", ("h", "root"), STAMP,
     "[incorrect x] qwerty", {"pid": "8449"}),
    ("no-value", "<13>1 2019-02-13T19:48:34+00:00 h root 8449 - [incorrect x=] qwerty", ("h", "root"), STAMP,
     "[incorrect x=] qwerty", {"pid": "8449"}),
    ("empty", '<13>1 2019-02-13T19:48:34+00:00 h root 8449 - [empty][n x="1"] qwerty', ("h", "root"), STAMP, "qwerty",
     {"pid": "8449", "empty": "", "n.x": "1"}),
    ("colon-in-app", "<28>1 2020-05-22T14:59:09.250-03:00 OX OX-C:rpd 6589 - - bgp: %DAEMON-4: x", ("OX", "OX-C:rpd"),
     at(2020, 5, 22, 17, 59, 9, 250000, zone=_UTC), "bgp: %DAEMON-4: x", {"pid": "6589"}),
    ("5424-no-priority", "1 2020-05-22T14:59:09.250-03:00 OX rpd 6589 - - bgp", ("OX", "rpd"),
     at(2020, 5, 22, 17, 59, 9, 250000, zone=_UTC), "bgp", {"pid": "6589"}),
    ("fraction-and-zone", "<190>2019-02-13T21:53:30.605850+00:00 h stdlog: start", ("h", "stdlog"),
     at(2019, 2, 13, 21, 53, 30, 605850, zone=_UTC), "start", {}),
    ("nonsense", "complete and utter gobbledegook", (PEER, None), NOW, "complete and utter gobbledegook", {}),
]  # fmt: skip
CASES = SENDERS + RSYSLOG + SYSLOG_LOOSE


@pytest.mark.parametrize(("message", "stream", "moment", "text", "fields"), [case[1:] for case in CASES],
                         ids=[case[0] for case in CASES])  # fmt: skip
def test_messages_of_real_senders(message, stream, moment, text, fields):
    """Each part is where the sender meant it; the stream has the sender's host and app, not a process id or word."""
    tags, record = read_message(message.encode(), PEER, NOW)
    assert (tags["host"], tags.get("app")) == stream
    assert (record.pop("ts"), record.pop("msg")) == (moment, text)
    for name in ("facility", "severity", "level"):
        record.pop(name, None)
    assert record == fields


def test_each_process_is_no_stream_of_its_own():
    """Restarts of a sender that names no host or numbers its messages stay in one stream."""
    forms = ("<30>Nov 22 20:00:00 app[{}]: x", "<30>app[{}]: x", "<30>1 - - app[{}] - - - x",
             "<189>{}: Nov 22 20:00:00: %SYS-5-CONFIG_I: x", "<189>{}: 1w2d: %SYS-5-CONFIG_I: x",
             "<13>Nov 22 20:00:00 {}: x")  # fmt: skip
    for form in forms:
        streams = {str(read_message(form.format(pid).encode(), PEER, NOW)[0]) for pid in range(1, 2_000, 97)}
        assert len(streams) == 1, form


SIGNS = st.text(st.sampled_from(" .:[]()=\"\\'/%@{}<>,;*-_ä"), max_size=3)
KEPT_SIGNS = ".()'/@{}<>,;*-_ä%"
"""Characters that must be kept; colons, brackets, quotes and spaces may be dropped as separators."""
HEADS = [
    "", "<13>", "<13> ", "<13>Nov 22 20:00:00 ", "<13>Nov 22 20:00:00 host ", "<13>Nov 22 20:00:00 host app[1]: ",
    "<13>Nov 22 2024 20:00:00: ", "<13>2026-03-01T08:00:00Z ", "<13>1 - h a - - ", "<13>1 - h a - - - ",
    "<13>1 2026-03-01T08:00:00 ", '<13>1 - h a - - [x a="1"] ', "<189>29: *Mar  1 18:48:50.483 UTC: ", "<189>29: ",
    "<189>: 2024 Nov 22 20:00:00 UTC: ", "<13>date=2026-02-28 time=20:00:00 ", "<13>Nov 22 20:00:00 Message forwarded ",
]  # fmt: skip


@examples(150)
@given(st.sampled_from(HEADS), st.lists(SIGNS, min_size=1, max_size=12))
@example("<13>1 - h a - - ", ["[", ' a="', '"][', "] "])
@example("<13>Nov 22 20:00:00 ", [" ", "[", "]: "])
def test_no_text_is_lost(head, signs):
    """All text after the header is in the message, a field or a tag."""
    text = "".join(sign + f"kq{number}z" for number, sign in enumerate(signs))
    tags, record = read_message((head + text).encode(), "peer", NOW)
    kept = [*tags.values(), *record, *_texts(record)]
    for number in range(len(signs)):
        assert any(f"kq{number}z" in part for part in kept), kept
    for sign in KEPT_SIGNS:
        assert sum(part.count(sign) for part in kept) >= text.count(sign), kept


@pytest.mark.parametrize("text", [
    "last message repeated 3 times", "Message forwarded from x", "-- MARK --", "- x", "a b c",
    '[x a="1" a="2"][e] t', "[x a] t", "%ASA-6-1 x", "29: x", "a[1]b", ": x", "date=1 x",
])  # fmt: skip
@pytest.mark.parametrize("head", HEADS)
def test_no_word_is_lost(head, text):
    """No word is lost of texts that look like something else."""
    tags, record = read_message((head + text).encode(), "peer", NOW)
    kept = [*tags.values(), *record, *_texts(record)]
    for word in text.replace("[", " ").replace("]", " ").replace('"', " ").replace("=", " ").replace(":", " ").split():
        assert word == "-" or any(word in part for part in kept), kept


def _texts(record):
    """All values as text."""
    for name, value in record.items():
        yield from [] if name == "ts" else value if isinstance(value, list) else [str(value)]


@pytest.mark.parametrize("form", [
    '<1>1 - - - - - [a b="' + "\\" * 60_000, "<1>1 - - - - - " + "[a" * 30_000, "<1>Jan  1 00:00:00 " + "a" * 60_000,
    "<1>1 - - - - - " + '[a b="c"]' * 6_000 + "x", '<1>1 - - - - - [a' + ' b="c"' * 9_000, "<1>" + " " * 60_000 + "x",
    "<1>Jan  1 00:00:00 h " + "a[" * 30_000, "<1>29: " + "a:" * 30_000,
    "<1>date=2026-01-01 time=00:00:00 " + " tz=" * 9_000,
    "<1>Jan  1 00:00:00 %" + "A-" * 30_000, "<1>Jan  1 00:00:00 Message forwarded from " + "a" * 60_000,
    " " * 60_000 + "<1>x", "<1>" + "1" * 60_000, "<1>Jan  1 00:00:00 " + "f:" * 30_000, "<1>" + "1:" * 30_000,
])  # fmt: skip
def test_hostile_messages_take_little_time(form):
    """No format makes the parser rescan bytes: 60 kB take a few milliseconds of CPU time."""
    began = time.thread_time()
    read_message(form.encode(), PEER, NOW)
    assert time.thread_time() - began < 0.2
