//! All that is read from a server or a user as text, for a fuzzer: any bytes are an answer or a refusal.
use redis::Value;

use super::Penalty;
use super::link::{Endpoint, read_as_link};
use super::wire::{Note, Reply};

/// The first byte says as what the others are read.
pub fn read_anything(bytes: &[u8]) {
    let Some((kind, rest)) = bytes.split_first() else {
        return;
    };
    match kind % 4 {
        0 => {
            if let Ok(value) = redis::parse_redis_value(rest) {
                (0..4).for_each(|ops| read_reply(&value, ops));
                read_as_link(value);
            }
        }
        1 => {
            let texts = rest.split(|byte| *byte == b'\n');
            let texts: Vec<Value> = texts.map(|one| Value::BulkString(one.to_vec())).collect();
            let ops = texts.len().saturating_sub(3);
            let value = Value::Array(texts);
            for ops in [ops, ops + 1, usize::from(*kind)] {
                read_reply(&value, ops);
            }
        }
        2 => {
            let _ = (Note::parse(rest), Penalty::parse(rest));
        }
        _ => {
            if let Ok(url) = std::str::from_utf8(rest) {
                let _ = Endpoint::parse(url).map(|endpoint| endpoint.to_string());
            }
        }
    }
}

/// An answer for each question, or none at all.
fn read_reply(value: &Value, ops: usize) {
    if let Ok(Reply::Done { answers, .. }) = Reply::read(value, ops) {
        assert_eq!(answers.len(), ops);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What reached most when it was fuzzed, again.
    #[test]
    fn the_corpus_is_read_or_refused() {
        let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fuzz/corpus/replies");
        let mut count = 0;
        for file in std::fs::read_dir(corpus).unwrap() {
            let path = file.unwrap().path();
            println!("{}", path.display());
            read_anything(&std::fs::read(path).unwrap());
            count += 1;
        }
        assert!(count > 100, "{count}");
    }
}
