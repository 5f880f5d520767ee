//! How is a question for SRV records written, and an answer read (RFC 1035)?

use std::net::IpAddr;

const SRV: u16 = 33;
const A: u16 = 1;
const AAAA: u16 = 28;
const INTERNET: u16 = 1;

const HEADER: usize = 12;
const LONGEST_NAME: usize = 255;

/// One of those that serve.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Service {
    /// The lowest is asked first.
    pub(super) priority: u16,
    pub(super) target: String,
    pub(super) port: u16,
    /// Those that were told along with it.
    pub(super) ips: Vec<IpAddr>,
}

/// What a server says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Answer {
    /// None where there is no such name, or no service.
    Services(Vec<Service>),
    /// It does not fit.
    Truncated,
    /// It has no answer, by this code.
    Failed(u8),
    /// It is broken off, or no message at all.
    Malformed,
}

/// Asks for the services of a name. `None`: it is no name.
pub(super) fn question(id: u16, name: &str) -> Option<Vec<u8>> {
    // One question, to be asked on.
    let mut question = [id.to_be_bytes(), [1, 0], [0, 1], [0; 2], [0; 2], [0; 2]].concat();
    for label in name.strip_suffix('.').unwrap_or(name).split('.') {
        let length = u8::try_from(label.len())
            .ok()
            .filter(|length| (1..64).contains(length))?;
        question.push(length);
        question.extend(label.as_bytes());
    }
    question.push(0);
    (question.len() - HEADER <= LONGEST_NAME).then_some(())?;
    question.extend([SRV.to_be_bytes(), INTERNET.to_be_bytes()].concat());
    Some(question)
}

/// Reads what came for a question. `None`: it is no answer to it.
pub(super) fn read(message: &[u8], question: &[u8]) -> Option<Answer> {
    let asked = message.get(HEADER..question.len())?;
    let is_answer = message[2] & 0b1111_1000 == 0b1000_0000;
    let one_question = message[4..6] == [0, 1];
    // Some servers change the case of letters.
    let same = message[..2] == question[..2] && asked.eq_ignore_ascii_case(&question[HEADER..]);
    if !(is_answer && one_question && same) {
        return None;
    }
    let truncated = message[2] & 0b10 != 0;
    Some(match message[3] & 0xf {
        _ if truncated => Answer::Truncated,
        0 => records(message, question.len()).map_or(Answer::Malformed, Answer::Services),
        // There is no such name.
        3 => Answer::Services(Vec::new()),
        code => Answer::Failed(code),
    })
}

fn u16_at(message: &[u8], at: usize) -> Option<u16> {
    let bytes = message.get(at..)?.first_chunk()?;
    Some(u16::from_be_bytes(*bytes))
}

/// The services among the records, which begin there.
fn records(message: &[u8], mut at: usize) -> Option<Vec<Service>> {
    let count = |at| u16_at(message, at).map(u32::from);
    let answers = count(6)?;
    let all = answers + count(8)? + count(10)?;
    let (mut services, mut ips) = (Vec::new(), Vec::new());
    for number in 0..all {
        let (owner, after) = name(message, at)?;
        let [kind, class] = [u16_at(message, after)?, u16_at(message, after + 2)?];
        let data = after + 10;
        let end = data + usize::from(u16_at(message, after + 8)?);
        let bytes = message.get(data..end)?;
        match kind {
            _ if class != INTERNET => {}
            SRV if number < answers => services.extend(service(message, data)?),
            A => ips.push((owner, IpAddr::from(<[u8; 4]>::try_from(bytes).ok()?))),
            AAAA => ips.push((owner, IpAddr::from(<[u8; 16]>::try_from(bytes).ok()?))),
            _ => {}
        }
        at = end;
    }
    for service in &mut services {
        let own = ips.iter().filter(|(owner, _)| *owner == service.target);
        service.ips = own.map(|(_, ip)| *ip).collect();
    }
    Some(services)
}

/// The service that a record names. A dot for its target says that there is none.
fn service(message: &[u8], at: usize) -> Option<Option<Service>> {
    let (target, _) = name(message, at + 6)?;
    let service = Service {
        priority: u16_at(message, at)?,
        port: u16_at(message, at + 4)?,
        target,
        ips: Vec::new(),
    };
    Some(Some(service).filter(|service| !service.target.is_empty() && service.port > 0))
}

/// The name that begins there, in small letters, and where it ends.
fn name(message: &[u8], at: usize) -> Option<(String, usize)> {
    let (mut name, mut here, mut end) = (String::new(), at, None);
    loop {
        let length = *message.get(here)?;
        match length >> 6 {
            0 if length == 0 => return Some((name, end.unwrap_or(here + 1))),
            0 => {
                let next = here + 1 + usize::from(length);
                let label = message.get(here + 1..next)?;
                if !name.is_empty() {
                    name.push('.');
                }
                name.push_str(&std::str::from_utf8(label).ok()?.to_ascii_lowercase());
                // So a name that goes round in circles has an end, too.
                (name.len() <= LONGEST_NAME).then_some(())?;
                here = next;
            }
            // The rest stands further up.
            3 => {
                let to = usize::from(u16_at(message, here)? & 0x3fff);
                end.get_or_insert(here + 2);
                (to < here).then_some(())?;
                here = to;
            }
            _ => return None,
        }
    }
}
