"""Limits in the store: all of a take or none of it, as one step, by the store's own clock.

A limit's state is the State of limits.py, and the rules are those of that module, once more in Lua.
A state bears the time at which it was written: where that is ahead, the store's clock was stepped
back, or another store has taken its place, and what is due is shifted with it.

A state outlives whatever any router may know of it: where one is missing the store was emptied, and
what whoever asks knows takes its place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from router.store.link import StoreCommand, StoreReply, StoreWord
from router.store.names import StoreNames
from router.store.script import StoreScript
from router.tenants.limits import UNTOUCHED, Limit, Rate, State

CHARGE_LIMITS = StoreScript("""
local time = redis.call('TIME')
local now = time[1] + time[2] / 1000000
local may_refuse = ARGV[1] == 'take'
local firsts, seconds, worst, which = {}, {}, 0, 0
local function word(i, n) return ARGV[1 + (i - 1) * 6 + n] end
local function number(i, n) return tonumber(word(i, n)) end
local function state_of(first, second, at)
  return string.format('%.6f %.17g %.6f', first, second, at)
end
for i, key in ipairs(KEYS) do
  local amount, size, unit = number(i, 2), number(i, 3), number(i, 4)
  local kept = redis.call('GET', key)
  local first, second = now + number(i, 5), number(i, 6)
  if kept then
    local due, spent, written = string.match(kept, '(%S+) (%S+) ?(%S*)')
    first, second = tonumber(due), tonumber(spent)
    local ahead = (tonumber(written) or now) - now
    if ahead > 0 then
      first = first - ahead
      redis.call('SET', key, state_of(first, second, now), 'KEEPTTL')
    end
  end
  local wait = 0
  if word(i, 1) == 'rate' then
    local needed = math.min(math.max(amount, 1), size)
    wait = math.max(first - now, 0) - (size - needed) * unit
  elseif second >= size then
    wait = first - now
  end
  if wait > worst then worst, which = wait, i end
  firsts[i], seconds[i] = first, second
end
if not may_refuse or which == 0 then
  worst, which = 0, 0
  for i, key in ipairs(KEYS) do
    local amount, size, unit = number(i, 2), number(i, 3), number(i, 4)
    local least = 0
    if word(i, 1) == 'rate' then
      firsts[i] = math.max(firsts[i], now) + amount * unit
      least = size * unit
    else
      if firsts[i] <= now then firsts[i], seconds[i] = now + unit, 0 end
      seconds[i] = math.max(0, seconds[i] + amount)
    end
    local life = math.max(firsts[i] - now, least, redis.call('PTTL', key) / 1000)
    redis.call('SET', key, state_of(firsts[i], seconds[i], now), 'PX', math.ceil(life * 1000) + 1)
  end
end
local reply = {which, math.ceil(worst * 1000000)}
for i in ipairs(KEYS) do
  table.insert(reply, math.floor((firsts[i] - now) * 1000000))
  table.insert(reply, string.format('%.17g', seconds[i]))
end
return reply
""")
"""Of each limit: its kind, the amount, (a rate's burst and seconds a unit | a budget's tokens and
seconds a period), and its state as it is known, from now on. Replies which was refused (counted
from 1; 0: none), for how many microseconds, and all states, from now on too."""

Charged = Sequence[tuple[Limit, float]]


@dataclass(frozen=True, slots=True)
class ChargeReply:
    """As it was said at `now_s`."""

    refused: Limit | None
    wait_s: float
    states: Mapping[str, State]
    """By the limits' keys, on this router's clock."""


def charge_command(
    names: StoreNames, charged: Charged, known: Mapping[str, State], now_s: float, *, is_take: bool
) -> StoreCommand:
    """`is_take`: all or none; else they are counted whatever is left."""
    words: list[StoreWord] = ["take" if is_take else "settle"]
    for limit, amount in charged:
        first, second = known.get(limit.key, UNTOUCHED)
        words += [*_terms(limit, amount), max(0.0, first - now_s), second]
    keys = [names.of_all("limit", limit.key) for limit, _ in charged]
    return CHARGE_LIMITS.call(keys, words)


def read_charge_reply(reply: StoreReply, charged: Charged, now_s: float) -> ChargeReply:
    """Of the command that was made of the same limits."""
    which, wait_us, *states = reply
    by_key = {
        limit.key: (now_s + states[2 * at] / 1e6, float(states[2 * at + 1]))
        for at, (limit, _) in enumerate(charged)
    }
    return ChargeReply(charged[which - 1][0] if which else None, wait_us / 1e6, by_key)


def _terms(limit: Limit, amount: float) -> list[StoreWord]:
    if isinstance(limit, Rate):
        return ["rate", float(amount), limit.burst, limit.interval_s]
    return ["budget", float(amount), limit.tokens, limit.period_s]
