//! Does `paddler tree` print the tree by which requests are routed?

use std::fs;
use std::path::Path;

use paddler_core::schedule::{PictureFormat, trees};

use crate::path;
use crate::support::program::run;

async fn printed(args: &[&str]) -> String {
    let ended = run(&[&["tree"], args].concat(), &[]).await;
    assert_eq!(
        (ended.status.code(), ended.log.as_str()),
        (Some(0), ""),
        "{args:?}"
    );
    // Its lines were taken one by one.
    ended.out + "\n"
}

#[tokio::test]
async fn a_tree_is_that_of_the_command_of_a_name_or_of_a_file() {
    assert_eq!(printed(&[]).await, trees::gateway().to_string());
    assert_eq!(
        printed(&["--for", "balancer"]).await,
        trees::balancer().to_string()
    );
    assert_eq!(printed(&["--built-in", "seed"]).await, trees::seed().to_string());
    let file = path("tree-own.yaml", "tree: [require: model, pick: random]\n");
    let own = printed(&["--config", &file, "--format", "mermaid"]).await;
    assert!(
        own.starts_with("flowchart TD\n") && own.contains("require model") && own.contains("random"),
        "{own}"
    );
    let dot = printed(&["--format", "dot"]).await;
    assert_eq!(dot, trees::gateway().picture(PictureFormat::Dot).to_string());
}

#[tokio::test]
async fn a_file_with_a_fault_has_no_tree() {
    let file = path("tree-bad.yaml", "tree: [require: helthy, pick: random]\n");
    let ended = run(&["tree", "--config", &file], &[]).await;
    assert_eq!((ended.status.code(), ended.out.as_str()), (Some(1), ""));
    assert!(
        ended
            .log
            .contains("tree-bad.yaml:1:17: tree[0].require: \"helthy\""),
        "{}",
        ended.log
    );
}

#[tokio::test]
async fn the_pictures_in_the_readme_are_those_that_the_program_draws() {
    let readme = Path::new(env!("CARGO_MANIFEST_DIR")).join("../README.md");
    let readme = fs::read_to_string(readme).unwrap();
    let drawn = printed(&["--format", "mermaid"]).await;
    assert!(
        readme.contains(&format!("```mermaid\n{drawn}```\n")),
        "put what `paddler tree --format mermaid` prints into README.md:\n{drawn}"
    );
    assert_eq!(readme.matches("```mermaid").count(), 1, "each is looked at here");
}
