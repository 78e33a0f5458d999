//! Reading what callgrind writes: how much each function cost, with all that it called.
//!
//! ```text
//! fn=(12) name          a function; the name stands where its number is first used
//! 34 5                  line and instructions of its own
//! cfn=(17) other        it calls another,
//! calls=3 40            three times;
//! 34 900                line and instructions of those calls
//! ```

use std::collections::HashMap;

/// Calls of one function by another, with their cost.
#[derive(Debug)]
struct Call {
    caller: u32,
    callee: u32,
    cost: u64,
}

/// What was counted.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    names: HashMap<u32, String>,
    calls: Vec<Call>,
}

impl Counts {
    /// Reads a file of callgrind's.
    pub(crate) fn read(text: &str) -> Self {
        let mut counts = Self::default();
        let (mut caller, mut callee, mut calling) = (0, 0, false);
        for line in text.lines() {
            if let Some(name) = line.strip_prefix("fn=") {
                caller = counts.number(name);
            } else if let Some(name) = line.strip_prefix("cfn=") {
                callee = counts.number(name);
            } else if line.starts_with("calls=") {
                calling = true;
            } else if calling {
                calling = false;
                let cost = line
                    .split_whitespace()
                    .nth(1)
                    .and_then(|word| word.parse().ok());
                let cost = cost.unwrap_or(0);
                counts.calls.push(Call {
                    caller,
                    callee,
                    cost,
                });
            }
        }
        counts
    }

    /// The number in `(12) name`, of which the name is kept.
    fn number(&mut self, text: &str) -> u32 {
        let (number, name) = text
            .trim_start_matches('(')
            .split_once(')')
            .unwrap_or_default();
        let number = number.parse().unwrap();
        if !name.trim().is_empty() {
            self.names.insert(number, name.trim().to_owned());
        }
        number
    }

    fn is(&self, number: u32, name: &str) -> bool {
        self.names
            .get(&number)
            .is_some_and(|known| known.contains(name))
    }

    /// Everything that calls of functions of this name cost, from functions of other names.
    pub(crate) fn inclusive(&self, name: &str) -> u64 {
        let calls = self.calls.iter();
        let calls = calls.filter(|call| self.is(call.callee, name) && !self.is(call.caller, name));
        calls.map(|call| call.cost).sum()
    }

    /// Everything that calls from functions of one name to those of another cost.
    pub(crate) fn between(&self, caller: &str, callee: &str) -> u64 {
        let calls = self.calls.iter();
        let calls =
            calls.filter(|call| self.is(call.caller, caller) && self.is(call.callee, callee));
        calls.map(|call| call.cost).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "\
fn=(1) main
3 4
cfn=(2) push
calls=2 10
3 100
fn=(2)
10 60
cfn=(3) memcpy
calls=2 7
11 40
cfn=(2)
calls=1 10
12 5
";

    #[test]
    fn costs_are_those_of_calls() {
        let counts = Counts::read(FILE);
        assert_eq!(counts.inclusive("push"), 100, "not what it calls of itself");
        assert_eq!(counts.inclusive("memcpy"), 40);
        assert_eq!(counts.between("push", "memcpy"), 40);
        assert_eq!(counts.between("main", "memcpy"), 0);
        assert_eq!(counts.inclusive("nobody"), 0);
    }
}
