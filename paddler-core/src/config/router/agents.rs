//! Who may tell of engines, from beside them?

use std::path::PathBuf;

use super::fill::file;
use crate::config::fault::Faults;
use crate::config::read::Fields;

/// Who may be an agent, and tell of an engine.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct AgentRules {
    /// Whether a key is needed.
    pub access: AgentAccess,
    /// A file with the keys of which agents must present one, one a line. Default `None`: those of `management_key_file`, if
    /// there are any. As it is written: `paddler` looks for a relative path beside the config file.
    pub key_file: Option<PathBuf>,
}

/// Whether agents need a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
#[non_exhaustive]
pub enum AgentAccess {
    /// Where there are keys; where there are none, every program of this machine may be an agent, and only where `management` is
    /// on loopback. The default.
    #[default]
    Auto,
    /// None: whoever reaches `management` may be one, as with Paddler 1.x, whose agents have no keys. He says where requests go,
    /// and reads what is in them.
    Open,
    /// There are no agents.
    Off,
}

pub(super) fn agents(fields: &mut Fields<'_>, agents: &mut AgentRules, faults: &mut Faults) {
    if let Some(at) = fields.take("access", faults) {
        let words = [
            ("auto", AgentAccess::Auto),
            ("open", AgentAccess::Open),
            ("off", AgentAccess::Off),
        ];
        agents.access = at.word(faults, &words).unwrap_or_default();
    }
    if let Some(keys) = file(fields, "key_file", faults) {
        agents.key_file = Some(keys);
    }
}
