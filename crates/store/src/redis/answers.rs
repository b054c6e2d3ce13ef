//! Reads what the functions answer, strictly: anything else is [`StoreError::Corrupt`].

use adsum_core::{
    Change, codec,
    store::{Answer, Result, StoreError},
};
use redis::Value;

fn corrupt(what: &str, value: &Value) -> StoreError {
    StoreError::Corrupt(format!("{what} expected, {} answered", kind_of(value)))
}

/// Never the value itself: it may hold what belongs to users.
fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Nil => "nothing",
        Value::Int(_) => "a number",
        Value::Double(_) => "a fraction",
        Value::BulkString(_) | Value::SimpleString(_) | Value::VerbatimString { .. } => "a text",
        Value::Array(_) | Value::Set(_) => "a list",
        Value::Map(_) => "a map",
        _ => "something else",
    }
}

/// A whole number that is not negative.
pub(super) fn number(value: &Value) -> Result<u64> {
    let number = match value {
        Value::Int(n) => u64::try_from(*n).ok(),
        Value::Double(n) if n.fract() == 0.0 && (0.0..=MOST).contains(n) => Some(*n as u64),
        Value::BulkString(text) => std::str::from_utf8(text).ok().and_then(|t| t.parse().ok()),
        _ => None,
    };
    number.ok_or_else(|| corrupt("a number", value))
}

/// Scores are fractions to Redis; whole ones are exact up to here.
const MOST: f64 = 9_007_199_254_740_992.0;

/// Bytes.
pub(super) fn bytes(value: Value) -> Result<Vec<u8>> {
    match value {
        Value::BulkString(bytes) => Ok(bytes),
        Value::SimpleString(text) => Ok(text.into_bytes()),
        other => Err(corrupt("a text", &other)),
    }
}

/// A list.
pub(super) fn list(value: Value) -> Result<Vec<Value>> {
    match value {
        Value::Array(values) | Value::Set(values) => Ok(values),
        other => Err(corrupt("a list", &other)),
    }
}

/// `None` for nothing.
pub(super) fn optional(value: Value) -> Option<Value> {
    (value != Value::Nil).then_some(value)
}

/// Members with their scores, in both forms that Redis has for them; those without a time (the
/// sentinels) are left out.
pub(super) fn scored(value: Value) -> Result<Vec<(Vec<u8>, u64)>> {
    let values = list(value)?;
    let nested = values.iter().all(|v| matches!(v, Value::Array(_)));
    let flat = if nested {
        values
            .into_iter()
            .map(list)
            .collect::<Result<Vec<_>>>()?
            .into_iter()
            .flatten()
            .collect()
    } else {
        values
    };
    let mut members = Vec::with_capacity(flat.len() / 2);
    let mut rest = flat.into_iter();
    while let Some(member) = rest.next() {
        let score = rest.next().ok_or_else(|| corrupt("a score", &Value::Nil))?;
        let member = bytes(member)?;
        if !member.is_empty() {
            members.push((member, number(&score)?));
        }
    }
    Ok(members)
}

/// An answer of a function: its word, what every answer tells, and the rest of it, in order.
#[derive(Debug)]
pub(super) struct Reply {
    word: String,
    pub(super) epoch: u64,
    pub(super) at: u64,
    whole: Option<Box<Change>>,
    rest: std::vec::IntoIter<Value>,
}

impl Reply {
    pub(super) fn read(value: Value) -> Result<Self> {
        let mut rest = list(value)?.into_iter();
        let word = bytes(rest.next().unwrap_or(Value::Nil))?;
        let word = String::from_utf8(word).map_err(|_| corrupt("a word", &Value::Nil))?;
        let epoch = number(&rest.next().unwrap_or(Value::Nil))?;
        let at = number(&rest.next().unwrap_or(Value::Nil))?;
        Ok(Self {
            word,
            epoch,
            at,
            whole: None,
            rest,
        })
    }

    pub(super) fn word(&self) -> &str {
        &self.word
    }

    fn next(&mut self) -> Value {
        self.rest.next().unwrap_or(Value::Nil)
    }

    pub(super) fn number(&mut self) -> Result<u64> {
        number(&self.next())
    }

    /// A number that may be −1, which stands for none.
    pub(super) fn maybe_number(&mut self) -> Result<Option<u64>> {
        match self.next() {
            Value::Int(-1) => Ok(None),
            other => number(&other).map(Some),
        }
    }

    pub(super) fn flag(&mut self) -> Result<bool> {
        match self.number()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(StoreError::Corrupt(
                "neither yes nor no was answered".into(),
            )),
        }
    }

    pub(super) fn bytes(&mut self) -> Result<Vec<u8>> {
        bytes(self.next())
    }

    /// A change that is all there is to say of its owner: whoever asked is told of it, too.
    pub(super) fn whole(&mut self) -> Result<&Change> {
        let change = codec::decode_change(&self.bytes()?)?;
        Ok(self.whole.insert(Box::new(change)))
    }

    pub(super) fn list(&mut self) -> Result<Vec<Value>> {
        list(self.next())
    }

    /// The answer to one of several operations: its first value, which tells how many more it has.
    pub(super) fn part(&mut self, more: impl FnOnce(u64) -> Result<usize>) -> Result<Self> {
        let first = self.number()?;
        let mut values = vec![Value::Int(first.try_into().unwrap_or(i64::MAX))];
        values.extend((0..more(first)?).map(|_| self.next()));
        Ok(Self {
            word: self.word.clone(),
            epoch: self.epoch,
            at: self.at,
            whole: None,
            rest: values.into_iter(),
        })
    }

    /// An answer that must be complete.
    pub(super) fn answer<T>(mut self, value: T) -> Result<Answer<T>> {
        match self.rest.next() {
            None => Ok(Answer {
                epoch: self.epoch,
                at: self.at,
                whole: self.whole,
                value,
            }),
            Some(_) => Err(StoreError::Corrupt(format!(
                "more than `{}` has",
                self.word
            ))),
        }
    }

    pub(super) fn unknown<T>(self) -> Result<T> {
        Err(StoreError::Corrupt(format!(
            "an unknown answer: {}",
            self.word
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Value {
        Value::BulkString(text.as_bytes().to_vec())
    }

    #[test]
    fn garbage_is_an_error() {
        for garbage in [
            Value::Nil,
            Value::Int(1),
            Value::Array(vec![]),
            Value::Array(vec![text("ok")]),
            Value::Array(vec![text("ok"), Value::Int(-1), Value::Int(1)]),
            Value::Array(vec![text("ok"), text("x"), Value::Int(1)]),
        ] {
            assert!(matches!(Reply::read(garbage), Err(StoreError::Corrupt(_))));
        }
        let more = Value::Array(vec![
            text("ok"),
            Value::Int(1),
            Value::Int(1),
            Value::Int(1),
        ]);
        assert!(Reply::read(more).unwrap().answer(()).is_err());
        let mut short = Reply::read(Value::Array(vec![text("ok"), Value::Int(1), Value::Int(2)]));
        assert!(short.as_mut().unwrap().number().is_err());
        assert!(number(&Value::Double(0.5)).is_err());
        assert!(number(&Value::Double(f64::INFINITY)).is_err());
    }

    #[test]
    fn scores_come_in_two_forms() {
        let nested = Value::Array(vec![
            Value::Array(vec![text("a"), Value::Double(1.0)]),
            Value::Array(vec![text(""), Value::Double(f64::INFINITY)]),
        ]);
        let flat = Value::Array(vec![text("a"), text("1"), text(""), text("inf")]);
        for value in [nested, flat] {
            assert_eq!(scored(value), Ok(vec![(b"a".to_vec(), 1)]));
        }
        assert!(scored(Value::Array(vec![text("a")])).is_err());
    }
}
