//! The protocol with one of its rules taken away.
use super::Mode;

pub struct Mutant {
    pub name: &'static str,
    /// Where it does harm.
    pub mode: Mode,
    /// What is replaced in the script, as often as it occurs.
    pub script: &'static [(&'static str, &'static str)],
    pub client: Client,
}

/// What a process does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Client {
    Right,
    /// Asks again under another id.
    NewId,
    /// Does not cancel.
    NoCancel,
    /// Lets old requests run.
    NoNotAfter,
    /// Counts a lease from the answer on.
    FromReceipt,
    /// Gives up an id without keeping it out.
    NoDead,
    /// Does not say which era its permits are of.
    NoEra,
}

const fn script(
    name: &'static str,
    mode: Mode,
    script: &'static [(&'static str, &'static str)],
) -> Mutant {
    Mutant {
        name,
        mode,
        script,
        client: Client::Right,
    }
}

const fn client(name: &'static str, client: Client) -> Mutant {
    Mutant {
        name,
        mode: Mode::Base,
        script: &[],
        client,
    }
}

const GRANTED_AGAIN: &str =
    "if till then return granted(id, holds, span, tonumber(till)) end\n    local outcome";
const RELEASED: &str =
    "if not till then return answer('S', nil, 0) end\n    drop_holder(id, one)\n    pump()";
const RETURNED: &str =
    "if not till then return answer('S', nil, 0) end\n    drop_holder(id, one)\n    local booking";

pub const ALL: &[Mutant] = &[
    script(
        "an acquire is not idempotent",
        Mode::Base,
        &[(GRANTED_AGAIN, "local outcome")],
    ),
    script(
        "a release is not checked",
        Mode::Base,
        &[(RELEASED, "drop_holder(id, one or who(id))\n    pump()")],
    ),
    script(
        "newcomers overtake",
        Mode::Base,
        &[("if people[QUEUED] > 0 and outcome ~= 'never'", "if false")],
    ),
    script(
        "holders do not expire",
        Mode::Base,
        &[(
            "drop_holder(id, who(id))\n      elseif",
            "local _\n      elseif",
        )],
    ),
    script(
        "nobody is granted what came back",
        Mode::Base,
        &[("  pump()", "  local _")],
    ),
    client("asked again under another id", Client::NewId),
    script(
        "the dead wait for ever",
        Mode::Base,
        &[
            ("if alive and tonumber(alive) > now and", "if"),
            (
                "elseif letter == 'w' then\n        drop_waiter(id)",
                "elseif letter == 'w' then",
            ),
        ],
    ),
    client("nobody cancels", Client::NoCancel),
    client("old requests run", Client::NoNotAfter),
    script(
        "a cancel keeps a grant that came first",
        Mode::Base,
        &[(
            RETURNED,
            "if true then return answer('S', nil, 0) end\n    local booking",
        )],
    ),
    client("a lease counts from the answer", Client::FromReceipt),
    client("given up ids come back", Client::NoDead),
    script(
        "time runs back",
        Mode::Steps,
        &[("if now < key.seen then", "if false then")],
    ),
    // More than the trust table asks for.
    script(
        "claims live as long as leases",
        Mode::Base,
        &[(
            "booking, claim, true)",
            "booking, 10 * people[LONGEST], true)",
        )],
    ),
    script(
        "leases have no allowance",
        Mode::Steps,
        &[("span + allowance", "span")],
    ),
    script(
        "a loss is not seen",
        Mode::Evict,
        &[("if sizes[1] ~= counted + people[DEAD] or", "if false and")],
    ),
    script(
        "a loss is followed by no grace",
        Mode::Evict,
        &[(
            "if last > now then people[GRACE]",
            "if false then people[GRACE]",
        )],
    ),
    script(
        "nobody is one again after a loss",
        Mode::Evict,
        &[(
            "if era == key.era or score('d', id)",
            "if true or score('d', id)",
        )],
    ),
    script(
        "a head that is too heavy blocks",
        Mode::Change,
        &[
            (
                "if outcome == 'release' then return end\n      end",
                "if outcome == 'release' or outcome == 'never' then return end\n      end",
            ),
            (
                "if outcome ~= 'never' then return queued(id) end",
                "if true then return queued(id) end",
            ),
        ],
    ),
    script(
        "keys do not end",
        Mode::Base,
        &[("if (renew or begun[2])", "if false")],
    ),
    script(
        "keys end too early",
        Mode::Base,
        &[(
            "people[KEPT] = people[ENDS] + people[LONGEST]",
            "people[KEPT] = now + 1",
        )],
    ),
    script(
        "fencing numbers repeat",
        Mode::Base,
        &[(
            "people[FENCE] = max(people[FENCE] + 1, now)",
            "people[FENCE] = now",
        )],
    ),
    Mutant {
        mode: Mode::Flush,
        ..client("eras are not told", Client::NoEra)
    },
];
