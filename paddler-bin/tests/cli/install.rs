//! Is what the program prints for editors, shells and `man` true of it?

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use paddler_core::config::{Config, Registry};
use serde_json::Value as Json;

use crate::support::program::run;

async fn printed(args: &[&str]) -> String {
    let ended = run(args, &[]).await;
    let how = (ended.status.code(), ended.log.as_str());
    assert_eq!(how, (Some(0), ""), "{args:?}");
    ended.out
}

/// The commands that the help names, but for `help`.
async fn commands() -> BTreeSet<String> {
    let help = printed(&["--help"]).await;
    let listed = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let names = listed.take_while(|line| !line.is_empty()).filter_map(|line| {
        let name = line.strip_prefix("  ")?.split(' ').next()?;
        (!name.is_empty() && name != "help").then(|| name.to_owned())
    });
    let names: BTreeSet<_> = names.collect();
    assert!(names.contains("gateway") && names.len() >= 9, "{names:?}");
    names
}

/// The flags that a command's help names.
async fn flags(command: &str) -> BTreeSet<String> {
    let help = printed(&[command, "--help"]).await;
    let words = help.lines().map(str::trim).filter(|line| line.starts_with('-'));
    let words = words.flat_map(|line| {
        line.split([' ', ','])
            .filter(|word| word.starts_with("--"))
            .take(1)
    });
    words.map(str::to_owned).collect()
}

#[tokio::test]
async fn the_schema_is_that_of_the_config() {
    let schema: Json = serde_json::from_str(&printed(&["schema"]).await).unwrap();
    assert_eq!(schema, Config::schema(&Registry::new()));
}

#[tokio::test]
async fn completions_know_every_command_and_flag() {
    let commands = commands().await;
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let script = printed(&["completions", shell]).await;
        assert_eq!(
            script.contains("endpoint-picker"),
            commands.contains("endpoint-picker")
        );
        for command in &commands {
            assert!(script.contains(command.as_str()), "{shell}: {command}");
        }
        for flag in flags("gateway").await {
            // fish writes them without the dashes.
            let named = if shell == "fish" { &flag[2..] } else { &flag };
            assert!(script.contains(named), "{shell}: {flag}");
        }
    }
}

/// What bash completes a line to whose last word is begun.
fn completed(script: &Path, line: &[&str]) -> BTreeSet<String> {
    let words = line.join(" ");
    let (last, before) = (line[line.len() - 1], line[line.len() - 2]);
    let ask = format!(
        "source {script}; COMP_WORDS=({words}); COMP_CWORD={cword}; _paddler paddler '{last}' '{before}'; \
         printf '%s\\n' \"${{COMPREPLY[@]}}\"",
        script = script.display(),
        cword = line.len() - 1,
    );
    let asked = Command::new("bash")
        .args(["--norc", "-c", &ask])
        .output()
        .unwrap();
    assert!(asked.status.success(), "{asked:?}");
    let said = String::from_utf8(asked.stdout).unwrap();
    said.lines().map(str::to_owned).collect()
}

#[tokio::test]
async fn bash_completes_commands_flags_and_words() {
    let script = crate::file("paddler.bash", &printed(&["completions", "bash"]).await);
    assert!(completed(&script, &["paddler", "gat"]).contains("gateway"));
    let flags = completed(&script, &["paddler", "balancer", "--max"]);
    let wanted = ["--max-buffered-requests", "--max-requests", "--max-wait"];
    assert_eq!(flags, wanted.map(str::to_owned).into());
    let words = completed(&script, &["paddler", "gateway", "--engine", "v"]);
    assert_eq!(words, ["vllm".to_owned()].into());
}

fn empty_folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::remove_dir_all(&folder).ok();
    folder
}

#[tokio::test]
async fn there_is_a_page_for_each_command_with_all_its_flags() {
    // In folders that are not there yet.
    let folder = empty_folder("man").join("man1");
    printed(&["man", folder.to_str().unwrap()]).await;
    let files = fs::read_dir(&folder).unwrap();
    let pages: BTreeSet<_> = files
        .map(|file| file.unwrap().file_name().into_string().unwrap())
        .collect();
    let commands = commands().await;
    let wanted = commands.iter().map(|command| format!("paddler-{command}.1"));
    assert_eq!(pages, wanted.chain(["paddler.1".to_owned()]).collect());
    for command in &commands {
        let page = fs::read_to_string(folder.join(format!("paddler-{command}.1"))).unwrap();
        // A dash that is none of a sentence is written so.
        let page = page.replace("\\-", "-");
        for flag in flags(command).await {
            assert!(page.contains(&flag), "{command}: {flag}");
        }
    }
}

#[tokio::test]
async fn a_folder_that_cannot_be_made_is_told() {
    let file = crate::path("not-a-folder", "");
    let ended = run(&["man", &format!("{file}/man1")], &[]).await;
    assert_eq!(ended.status.code(), Some(1), "{ended:?}");
    assert!(ended.log.contains("not-a-folder/man1: "), "{ended:?}");
}
