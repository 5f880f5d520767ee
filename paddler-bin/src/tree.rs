//! By which tree are requests routed?

use paddler_core::schedule::{PictureFormat, Tree, trees};

use crate::args::look::{BuiltIn, For, Format, TreeArgs, TreeChoice};
use crate::{Failure, print, settings};

/// Prints the tree that the arguments name.
pub(crate) fn tree(args: &TreeArgs) -> Result<(), Failure> {
    let tree = chosen(&args.tree)?;
    let text = match args.format {
        Format::Text => tree.to_string(),
        Format::Mermaid => tree.picture(PictureFormat::Mermaid).to_string(),
        Format::Dot => tree.picture(PictureFormat::Dot).to_string(),
    };
    print(text.as_bytes())
}

/// The tree of a config file, a built-in one, or that of a command.
pub(crate) fn chosen(tree: &TreeChoice) -> Result<Tree, Failure> {
    if let Some(file) = &tree.config {
        return Ok(settings::of_file(file, tree.r#for.mode())?.tree);
    }
    Ok(match (tree.built_in, tree.r#for) {
        (Some(BuiltIn::Seed), _) => trees::seed(),
        (Some(BuiltIn::Balancer), _) | (None, For::Balancer) => trees::balancer(),
        (Some(BuiltIn::Gateway) | None, _) => trees::gateway(),
    })
}
