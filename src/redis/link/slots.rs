//! Which node of a cluster owns which slot: the hash of a key, and the map the nodes hand out.
use redis::Value;

use super::endpoint::Addr;

pub(super) const SLOTS: u16 = 16_384;

/// The slot of a key: CRC16 of its hash tag, if it has one that is not empty, else of the whole key.
pub fn slot_of(key: &[u8]) -> u16 {
    let tag = || {
        let open = key.iter().position(|b| *b == b'{')? + 1;
        let length = key[open..].iter().position(|b| *b == b'}')?;
        (length > 0).then(|| &key[open..open + length])
    };
    crc16::State::<crc16::XMODEM>::calculate(tag().unwrap_or(key)) % SLOTS
}

/// A run of slots and who owns it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Range {
    pub first: u16,
    pub last: u16,
    pub master: Addr,
    /// They know the map too, and may be masters next.
    pub replicas: Vec<Addr>,
}

/// Reads the reply to CLUSTER SLOTS given by `asked`; sorted by slot.
pub(super) fn read_map(reply: Value, asked: &Addr) -> Option<Vec<Range>> {
    let Value::Array(entries) = reply else {
        return None;
    };
    let mut ranges: Vec<Range> = entries
        .into_iter()
        .map(|entry| read_range(entry, asked))
        .collect::<Option<_>>()?;
    ranges.sort_by_key(|range| range.first);
    let disjoint = ranges.windows(2).all(|pair| pair[0].last < pair[1].first);
    disjoint.then_some(ranges)
}

fn read_range(entry: Value, asked: &Addr) -> Option<Range> {
    let Value::Array(fields) = entry else {
        return None;
    };
    let mut fields = fields.into_iter();
    let mut slot = || match fields.next()? {
        Value::Int(slot) => u16::try_from(slot).ok().filter(|slot| *slot < SLOTS),
        _ => None,
    };
    let (first, last) = (slot()?, slot()?);
    let mut nodes = fields.map(|node| read_node(node, asked));
    let master = nodes.next()??;
    let replicas = nodes.flatten().collect();
    (first <= last).then_some(Range {
        first,
        last,
        master,
        replicas,
    })
}

/// `[host, port, id, ...]`. A node that does not know its own address leaves it out: then it is the
/// one we reached it at.
fn read_node(node: Value, asked: &Addr) -> Option<Addr> {
    let Value::Array(fields) = node else {
        return None;
    };
    let mut fields = fields.into_iter();
    let host = match fields.next()? {
        Value::Nil => None,
        Value::BulkString(host) => String::from_utf8(host).ok(),
        Value::SimpleString(host) => Some(host),
        _ => return None,
    };
    let Value::Int(port) = fields.next()? else {
        return None;
    };
    let target = super::failure::Target {
        host: host.filter(|host| !host.is_empty() && host != "?"),
        port: u16::try_from(port).ok()?,
    };
    Some(target.addr(asked))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_redis_computes() {
        // From CLUSTER KEYSLOT.
        for (key, slot) in [
            ("", 0),
            ("foo", 12_182),
            ("{foo}bar", 12_182),
            ("x{foo}{y}", 12_182),
            ("{}foo", 9_500),
            ("{foo", 13_308),
            ("123456789", 12_739),
        ] {
            assert_eq!(slot_of(key.as_bytes()), slot, "{key}");
        }
    }

    #[test]
    fn a_map_is_read_and_nonsense_is_not() {
        let asked = Addr::Tcp("seed".into(), 1);
        let read =
            |wire: &str| read_map(redis::parse_redis_value(wire.as_bytes()).unwrap(), &asked);
        let node = "*4\r\n$1\r\nh\r\n:7000\r\n$2\r\nid\r\n*0\r\n";
        let unknown = "*3\r\n$-1\r\n:7001\r\n$2\r\nid\r\n";
        let wire =
            format!("*2\r\n*3\r\n:100\r\n:16383\r\n{unknown}*4\r\n:0\r\n:99\r\n{node}{unknown}");
        let map = read(&wire).unwrap();
        assert_eq!((map[0].first, map[0].last), (0, 99));
        assert_eq!(map[0].master, Addr::Tcp("h".into(), 7000));
        assert_eq!(map[0].replicas, [Addr::Tcp("seed".into(), 7001)]);
        assert_eq!(map[1].master, Addr::Tcp("seed".into(), 7001));
        assert_eq!(read("*0\r\n"), Some(vec![]));
        for bad in [
            "+OK\r\n".to_string(),
            format!("*1\r\n*3\r\n:5\r\n:4\r\n{node}"),
            format!("*1\r\n*3\r\n:0\r\n:16384\r\n{node}"),
            "*1\r\n*2\r\n:0\r\n:1\r\n".to_string(),
            format!("*2\r\n*3\r\n:0\r\n:9\r\n{node}*3\r\n:9\r\n:10\r\n{node}"),
        ] {
            assert_eq!(read(&bad), None, "{bad:?}");
        }
    }
}
