//! What took how many instructions and allocations before, and for which build does that hold?
//!
//! The program `gates` counts, and compares with what stands in [`file()`].

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use crate::harness::Failure;

/// How to renew it.
const RENEW: &str = "cargo run --release -p paddler-benches --bin gates -- --renew";

/// The share by which a count may differ.
const MAY_DIFFER: f64 = 0.05;

/// What one run of a case takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Count {
    /// The instructions of the processor.
    pub instructions: u64,
    /// How often memory is allocated.
    pub allocations: u64,
}

/// What counts depend on besides this project's own code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Key {
    /// With the kind of machine it builds for.
    compiler: String,
    /// A hash of `Cargo.lock`.
    lock: String,
    /// How a release is built, as `Cargo.toml` has it.
    profile: String,
}

/// The counts of all cases, by name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Baseline {
    /// What they hold for.
    pub key: Key,
    /// On what instructions were counted: libraries go other ways on others.
    pub processor: String,
    /// What one run of each takes.
    pub cases: BTreeMap<String, Count>,
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            compiler,
            lock,
            profile,
        } = self;
        write!(
            f,
            "{compiler}, Cargo.lock {lock} and the release profile `{profile}`"
        )
    }
}

impl Key {
    /// That of the compiler, the lock file and the profile in this workspace.
    ///
    /// # Errors
    /// When either does not tell.
    pub fn of_this_build() -> Result<Self, Failure> {
        let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
        let told = Command::new(rustc).current_dir(home()).arg("-vV").output()?;
        let told = String::from_utf8(told.stdout)?;
        let first = told.lines().next().unwrap_or_default();
        let host = told
            .lines()
            .find_map(|line| line.strip_prefix("host: "))
            .unwrap_or_default();
        let lock = std::fs::read(home().join("../Cargo.lock"))?;
        Ok(Self {
            compiler: format!("{first} {host}"),
            lock: format!("{:016x}", hash(&lock)),
            profile: profile(&std::fs::read_to_string(home().join("../Cargo.toml"))?),
        })
    }
}

/// The settings of a release in such a file.
fn profile(manifest: &str) -> String {
    let mut lines = manifest.lines().map(str::trim);
    lines.find(|line| *line == "[profile.release]");
    let settings = lines.take_while(|line| !line.starts_with('['));
    let settings: Vec<_> = settings
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .collect();
    settings.join(", ")
}

/// The maker of this machine's processor, and what it can of that by which copying and searching choose their way.
#[must_use]
pub fn processor() -> String {
    let told = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let line = |name: &str| {
        let mut lines = told.lines().filter_map(|line| line.split_once(':'));
        lines
            .find(|(key, _)| key.trim() == name)
            .map_or("", |(_, value)| value.trim())
    };
    let flags = line("flags");
    let can = |flag: &&str| flags.split(' ').any(|known| known == *flag);
    let ways = ["avx2", "avx512f", "avx512vl", "erms", "fsrm"]
        .into_iter()
        .filter(can);
    [std::env::consts::ARCH, line("vendor_id")]
        .into_iter()
        .filter(|word| !word.is_empty())
        .chain(ways)
        .collect::<Vec<_>>()
        .join(" ")
}

/// FNV-1a: it has to tell files apart, and to stay the same.
fn hash(bytes: &[u8]) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, step)
}

fn home() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Where it is.
#[must_use]
pub fn file() -> PathBuf {
    home().join("gates.json")
}

impl Baseline {
    /// The stored one; an empty one, which is for no build, where there is none.
    ///
    /// # Errors
    /// When the file cannot be read, or is not of this form.
    pub fn read(file: &Path) -> Result<Self, Failure> {
        let text = match std::fs::read_to_string(file) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => "{}".to_owned(),
            Err(error) => return Err(error.into()),
        };
        let stored: Value = serde_json::from_str(&text)?;
        let text = |name: &str| stored[name].as_str().unwrap_or_default().to_owned();
        let mut cases = BTreeMap::new();
        for (name, case) in stored["cases"].as_object().into_iter().flatten() {
            let number = |what: &str| {
                case[what]
                    .as_u64()
                    .ok_or_else(|| format!("{name} without its {what}"))
            };
            let count = Count {
                instructions: number("instructions")?,
                allocations: number("allocations")?,
            };
            cases.insert(name.clone(), count);
        }
        Ok(Self {
            key: Key {
                compiler: text("compiler"),
                lock: text("lock"),
                profile: text("profile"),
            },
            processor: text("processor"),
            cases,
        })
    }

    /// Stores it.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn write(&self, file: &Path) -> Result<(), Failure> {
        // A line for each, so that a change is read as one.
        let line = |(name, count): (&String, &Count)| {
            let count = json!({"instructions": count.instructions, "allocations": count.allocations});
            format!("    {}: {count}", json!(name))
        };
        let cases: Vec<String> = self.cases.iter().map(line).collect();
        let told = [
            ("compiler", &self.key.compiler),
            ("lock", &self.key.lock),
            ("profile", &self.key.profile),
            ("processor", &self.processor),
        ];
        let told = told.map(|(name, value)| format!("  {}: {},\n", json!(name), json!(value)));
        let (told, cases) = (told.concat(), cases.join(",\n"));
        let text = format!("{{\n{told}  \"cases\": {{\n{cases}\n  }}\n}}\n");
        Ok(std::fs::write(file, text)?)
    }

    /// Whether what is counted by this build can be compared with it.
    ///
    /// # Errors
    /// With both, and how to renew it, where it cannot.
    pub fn is_for(&self, key: &Key) -> Result<(), Failure> {
        if self.key == *key {
            return Ok(());
        }
        Err(format!(
            "gates.json is for {}; this is {}. Where only these have changed, renew it, and look at what it shows:\n{RENEW}",
            self.key, key
        )
        .into())
    }

    /// A table of what was found, with how far it is from what is stored.
    #[must_use]
    pub fn compared_with(&self, found: &BTreeMap<String, Count>) -> String {
        let mut table = String::new();
        for (name, now) in found {
            let then = self.cases.get(name);
            let change = then.map_or("new".to_owned(), |then| {
                format!("{:+.1} %", 100.0 * (growth(then.instructions, now.instructions)))
            });
            let (instructions, allocations) = (now.instructions, now.allocations);
            writeln!(
                table,
                "{name:<32} {instructions:>12} instructions {change:>9} {allocations:>6} allocations"
            )
            .ok();
        }
        table
    }

    /// Whether instructions that were found can be held against those that are stored.
    #[must_use]
    pub fn is_of_this_kind(&self, found: &Self) -> bool {
        self.processor == found.processor
    }

    /// Whether what was found is what is stored. Instructions of another kind of processor are not judged.
    ///
    /// # Errors
    /// With each case that takes over 5 % more or less, is new or is gone, and how to renew it. What takes less has to be written
    /// down: else it could become what it was again, and nobody would see it.
    pub fn judge(&self, found: &Self) -> Result<(), Failure> {
        let (mut faults, mut gains) = (Vec::new(), Vec::new());
        for (name, now) in &found.cases {
            let Some(then) = self.cases.get(name) else {
                faults.push(format!("{name}: not in gates.json"));
                continue;
            };
            for (what, then, now) in [
                ("instructions", then.instructions, now.instructions),
                ("allocations", then.allocations, now.allocations),
            ] {
                let judged = what == "allocations" || self.is_of_this_kind(found);
                if judged && growth(then, now) > MAY_DIFFER {
                    faults.push(format!("{name}: {now} {what}, and it was {then}"));
                } else if judged && growth(then, now) < -MAY_DIFFER {
                    gains.push(format!("{name}: only {now} {what}, and it was {then}"));
                }
            }
        }
        let gone = self.cases.keys().filter(|name| !found.cases.contains_key(*name));
        faults.extend(gone.map(|name| format!("{name}: in gates.json, and no case any more")));
        let mut told = Vec::new();
        if !faults.is_empty() {
            told.push(format!(
                "{}\nIf it is worth it, renew the baseline:",
                faults.join("\n")
            ));
        }
        if !gains.is_empty() {
            told.push(format!(
                "{}\nThat is a gain: renew the baseline, so that it cannot be lost again unseen:",
                gains.join("\n")
            ));
        }
        if told.is_empty() {
            return Ok(());
        }
        Err(format!("{}\n{RENEW}", told.join("\n")).into())
    }
}

/// The share by which a count has grown.
fn growth(then: u64, now: u64) -> f64 {
    (now as f64 - then as f64) / (then as f64).max(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn baseline(cases: &[(&str, u64, u64)]) -> Baseline {
        let count = |&(name, instructions, allocations): &(&str, u64, u64)| {
            let count = Count {
                instructions,
                allocations,
            };
            (name.to_owned(), count)
        };
        Baseline {
            key: Key {
                compiler: "rustc 1.90.0 here".to_owned(),
                lock: "00".to_owned(),
                profile: "lto = \"thin\"".to_owned(),
            },
            processor: "here".to_owned(),
            cases: cases.iter().map(count).collect(),
        }
    }

    fn fault(stored: &Baseline, found: &[(&str, u64, u64)]) -> String {
        stored.judge(&baseline(found)).unwrap_err().to_string()
    }

    #[test]
    fn a_case_may_take_a_little_less_or_more() {
        let stored = baseline(&[("a", 1000, 4), ("b", 1000, 0)]);
        assert!(stored.judge(&baseline(&[("a", 1050, 4), ("b", 950, 0)])).is_ok());
    }

    #[test]
    fn a_gain_has_to_be_written_down() {
        let stored = baseline(&[("a", 1000, 4), ("b", 1000, 4), ("c", 1000, 4)]);
        let told = fault(&stored, &[("a", 949, 4), ("b", 1000, 3), ("c", 1000, 4)]);
        assert!(
            told.contains("a: only 949 instructions, and it was 1000"),
            "{told}"
        );
        assert!(told.contains("b: only 3 allocations, and it was 4"), "{told}");
        assert!(told.contains("a gain: renew") && told.ends_with(RENEW), "{told}");
        assert!(!told.contains("worth it") && !told.contains("c:"), "{told}");
        let told = fault(&stored, &[("a", 949, 4), ("b", 1051, 4), ("c", 1000, 4)]);
        assert!(
            told.contains("If it is worth it") && told.contains("a gain"),
            "{told}"
        );
        assert_eq!(told.matches(RENEW).count(), 1, "{told}");
    }

    #[test]
    fn a_case_that_takes_more_is_named_with_how_to_renew() {
        let stored = baseline(&[("a", 1000, 4), ("b", 1000, 0)]);
        let told = fault(&stored, &[("a", 1051, 4), ("b", 1000, 1)]);
        assert!(told.contains("a: 1051 instructions, and it was 1000"), "{told}");
        assert!(told.contains("b: 1 allocations, and it was 0"), "{told}");
        assert!(told.ends_with(RENEW), "{told}");
        assert!(!told.contains("a: 4 allocations"), "{told}");
    }

    #[test]
    fn another_kind_of_processor_is_held_to_allocations_alone() {
        let stored = baseline(&[("a", 1000, 4)]);
        let other = |allocations| Baseline {
            processor: "elsewhere".to_owned(),
            ..baseline(&[("a", 9000, allocations)])
        };
        assert!(stored.judge(&other(4)).is_ok());
        let told = stored.judge(&other(5)).unwrap_err().to_string();
        assert!(
            told.contains("a: 5 allocations") && !told.contains("9000"),
            "{told}"
        );
        assert!(!processor().is_empty());
    }

    #[test]
    fn a_case_cannot_come_or_go_unseen() {
        let stored = baseline(&[("a", 1, 0)]);
        let told = fault(&stored, &[("b", 1, 0)]);
        assert!(told.contains("b: not in gates.json"), "{told}");
        assert!(told.contains("a: in gates.json, and no case any more"), "{told}");
    }

    #[test]
    fn another_build_has_to_be_renewed() {
        let (stored, key) = (baseline(&[]), Key::of_this_build().unwrap());
        let told = stored.is_for(&key).unwrap_err().to_string();
        assert!(
            told.contains(&key.compiler) && told.contains("1.90.0") && told.ends_with(RENEW),
            "{told}"
        );
        assert!(stored.is_for(&stored.key).is_ok());
        let other = Key {
            profile: "lto = \"fat\"".to_owned(),
            ..stored.key.clone()
        };
        let told = stored.is_for(&other).unwrap_err().to_string();
        assert!(
            told.contains("`lto = \"thin\"`") && told.contains("`lto = \"fat\"`"),
            "{told}"
        );
    }

    #[test]
    fn the_profile_is_the_settings_alone() {
        let manifest = "[a]\nlto = 1\n\n[profile.release]\n# why\nlto = \"fat\"\n\ncodegen-units = 1\n[profile.dev]\ndebug = 1\n";
        assert_eq!(profile(manifest), "lto = \"fat\", codegen-units = 1");
        assert_eq!(profile("[profile.dev]\ndebug = 1\n"), "");
        assert!(Key::of_this_build().unwrap().profile.contains("lto"));
    }

    #[test]
    fn what_is_written_is_read_again_and_what_is_none_is_for_no_build() {
        let file = std::env::temp_dir().join(format!("paddler-baseline-{}.json", std::process::id()));
        let stored = baseline(&[("pick/\"a\"", 7, 0), ("b", 8, 9)]);
        assert!(Baseline::read(&file).unwrap().is_for(&stored.key).is_err());
        stored.write(&file).unwrap();
        let read = Baseline::read(&file);
        std::fs::remove_file(&file).unwrap();
        assert_eq!(read.unwrap(), stored);
    }
}
