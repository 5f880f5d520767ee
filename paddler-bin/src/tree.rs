//! By which tree are requests routed?

use std::path::Path;

use paddler_core::schedule::{PictureFormat, Tree, trees};

use crate::args::{BuiltIn, For, Format, TreeArgs};
use crate::{Failure, print, settings};

/// Prints the tree that the arguments name.
pub(crate) fn tree(args: &TreeArgs) -> Result<(), Failure> {
    let tree = named(args.config.as_deref(), args.r#for, args.built_in)?;
    let text = match args.format {
        Format::Text => tree.to_string(),
        Format::Mermaid => tree.picture(PictureFormat::Mermaid).to_string(),
        Format::Dot => tree.picture(PictureFormat::Dot).to_string(),
    };
    print(text.as_bytes())
}

/// The tree of a config file, a built-in one, or that of a command.
pub(crate) fn named(config: Option<&Path>, command: For, built_in: Option<BuiltIn>) -> Result<Tree, Failure> {
    if let Some(file) = config {
        return Ok(settings::of_file(file, command.mode())?.tree);
    }
    Ok(match (built_in, command) {
        (Some(BuiltIn::Seed), _) => trees::seed(),
        (Some(BuiltIn::Balancer), _) | (None, For::Balancer) => trees::balancer(),
        (Some(BuiltIn::Gateway) | None, _) => trees::gateway(),
    })
}
