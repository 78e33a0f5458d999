//! Rules as text, for variables, options and files.
//!
//! ```text
//! seed=7; drop 1%; out corrupt 0.1%; reorder=200us 5%; drop nth=3 op=RC_ACKNOWLEDGE
//! delay=1ms qp=0x12001 psn=100-110; rnr every=50 op=RC_SEND*; stall=20ms nth=1000
//!
//! rule       [in|out] action [condition…]            rules are separated by `;`
//! action     drop | duplicate | corrupt | reorder=TIME | delay=TIME
//!            rnr | cq-overflow | ae=CODE | fatal | port-down=TIME | stall=TIME
//! condition  P% | p=P | nth=N | every=N | times=N | op=NAME | qp=N | psn=N[-N]
//! TIME       200ns, 5us, 1ms, 2s
//! ```

use super::FaultConfig;
use super::judge::opcodes;
use super::rule::{DeviceFault, Direction, FaultAction, FaultRule};
use core::str::FromStr;
use core::time::Duration;
use srdma_core::hw::AeCode;
use srdma_core::num::Qpn;

/// Rules that one text may have.
const MAX_RULES: usize = 256;
/// Longest time: longer ones are meant differently.
const MAX_TIME: Duration = Duration::from_secs(3600);

/// A text of rules that cannot be understood.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{part}`: {why}")]
pub struct FaultSyntax {
    part: String,
    why: &'static str,
}

fn wrong(part: &str, why: &'static str) -> FaultSyntax {
    let part = part.chars().take(80).collect();
    FaultSyntax { part, why }
}

impl FromStr for FaultConfig {
    type Err = FaultSyntax;

    fn from_str(text: &str) -> Result<Self, FaultSyntax> {
        let mut config = Self::default();
        let clauses = text.split([';', '\n']).map(str::trim);
        for clause in clauses.filter(|clause| !clause.is_empty() && !clause.starts_with('#')) {
            config.add(clause)?;
        }
        Ok(config)
    }
}

impl FaultConfig {
    /// Adds one rule, or sets the seed.
    pub fn add(&mut self, clause: &str) -> Result<(), FaultSyntax> {
        if let Some(seed) = clause.strip_prefix("seed=") {
            self.seed = number(seed.trim()).ok_or_else(|| wrong(clause, "expected a number"))?;
            return Ok(());
        }
        if self.rules.len() >= MAX_RULES {
            return Err(wrong(clause, "more than 256 rules"));
        }
        self.rules.push(clause.parse()?);
        Ok(())
    }
}

impl FromStr for FaultRule {
    type Err = FaultSyntax;

    fn from_str(clause: &str) -> Result<Self, FaultSyntax> {
        let words = clause.split(|c: char| c.is_whitespace() || c == ',');
        let mut words = words.filter(|word| !word.is_empty()).peekable();
        let direction = match words.peek() {
            Some(&"out") => Direction::Out,
            _ => Direction::In,
        };
        words.next_if(|word| matches!(*word, "in" | "out"));
        let word = words
            .next()
            .ok_or_else(|| wrong(clause, "expected an action"))?;
        let mut rule = Self::new(action(word)?);
        rule.direction = direction;
        if direction == Direction::Out && matches!(rule.action, FaultAction::Device(_)) {
            return Err(wrong(
                clause,
                "faults of the device come with packets that come in",
            ));
        }
        for word in words {
            condition(&mut rule, word)?;
        }
        Ok(rule)
    }
}

fn action(word: &str) -> Result<FaultAction, FaultSyntax> {
    let (name, value) = match word.split_once('=') {
        Some((name, value)) => (name, Some(value)),
        None => (word, None),
    };
    let needs_time = || wrong(word, "expected a time, as in delay=200us, up to 3600s");
    let time = || value.and_then(duration).ok_or_else(needs_time);
    let ns = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    let action = match name {
        "reorder" => FaultAction::Reorder { ns: ns(time()?) },
        "delay" => FaultAction::Delay { ns: ns(time()?) },
        "port-down" => FaultAction::Device(DeviceFault::PortDown(time()?)),
        "stall" => FaultAction::Device(DeviceFault::Stall(time()?)),
        "ae" => {
            let code = value.and_then(ae_code);
            let why = "expected the code of an asynchronous event, by name or number";
            FaultAction::Device(DeviceFault::Async(code.ok_or_else(|| wrong(word, why))?))
        }
        _ if value.is_some() => return Err(wrong(word, "no such action, or it takes no value")),
        "drop" => FaultAction::Drop,
        "duplicate" => FaultAction::Duplicate,
        "corrupt" => FaultAction::Corrupt,
        "rnr" => FaultAction::Device(DeviceFault::NotReady),
        "cq-overflow" => FaultAction::Device(DeviceFault::CqOverflow),
        "fatal" => FaultAction::Device(DeviceFault::Fatal),
        _ => return Err(wrong(word, "no such action")),
    };
    Ok(action)
}

fn condition(rule: &mut FaultRule, word: &str) -> Result<(), FaultSyntax> {
    let to = &mut rule.to;
    if let Some(percent) = word.strip_suffix('%') {
        to.chance = Some(share(percent, 100.0).ok_or_else(|| wrong(word, "expected 0% to 100%"))?);
        return Ok(());
    }
    let unknown = "no such condition: P%, p=, nth=, every=, times=, op=, qp=, psn=";
    let (name, value) = word.split_once('=').ok_or_else(|| wrong(word, unknown))?;
    let positive = || {
        let number = number(value).filter(|number| *number > 0);
        number.ok_or_else(|| wrong(word, "expected a number from 1"))
    };
    let bits24 = |value| {
        let number = number(value).and_then(|number| u32::try_from(number).ok());
        number.filter(|number| *number < 1 << 24)
    };
    match name {
        "p" => {
            let odds = share(value, 1.0);
            to.chance = Some(odds.ok_or_else(|| wrong(word, "expected a share from 0 to 1"))?);
        }
        "nth" => to.nth = Some(positive()?),
        "every" => to.every = Some(positive()?),
        "times" => to.times = Some(positive()?),
        "op" => {
            if !opcodes(value).contains(&true) {
                return Err(wrong(
                    word,
                    "no such opcode, as in op=RC_SEND_ONLY or op=RC_SEND*",
                ));
            }
            to.opcode = Some(value.to_owned());
        }
        "qp" => {
            let qpn = bits24(value).ok_or_else(|| wrong(word, "expected a 24-bit number"))?;
            to.qp = Some(Qpn::new(qpn));
        }
        "psn" => {
            let (first, last) = value.split_once('-').unwrap_or((value, value));
            let (Some(first), Some(last)) = (bits24(first), bits24(last)) else {
                return Err(wrong(
                    word,
                    "expected a 24-bit number, or two, as in psn=100-110",
                ));
            };
            to.psn = Some(first..=last);
        }
        _ => return Err(wrong(word, unknown)),
    }
    Ok(())
}

fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    }
}

fn share(text: &str, whole: f64) -> Option<f64> {
    let share = text.parse::<f64>().ok()? / whole;
    (0.0..=1.0).contains(&share).then_some(share)
}

fn duration(text: &str) -> Option<Duration> {
    let digits = text.find(|c: char| !c.is_ascii_digit())?;
    let (count, unit) = text.split_at(digits);
    let scale = match unit {
        "ns" => 1,
        "us" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        _ => return None,
    };
    let time = Duration::from_nanos(count.parse::<u64>().ok()?.checked_mul(scale)?);
    (time <= MAX_TIME).then_some(time)
}

fn ae_code(text: &str) -> Option<AeCode> {
    if let Some(number) = number(text) {
        let code = u16::try_from(number).ok()?;
        return (1..0x1000).contains(&code).then_some(AeCode(code));
    }
    let named = |code: &AeCode| {
        code.name()
            .is_some_and(|name| name.eq_ignore_ascii_case(text))
    };
    (1..0x1000).map(AeCode).find(named)
}
