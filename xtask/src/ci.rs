//! `ci`: all stages of the continuous integration, as `.ci/run` runs them.

use std::time::Instant;

use anyhow::{Context as _, Result};

use crate::workspace::Workspace;
use crate::{args, deny, examples, peers, test};

type Stage = fn(&Workspace, &[String]) -> Result<()>;

/// In the order of `.ci/run`.
const STAGES: &[(&str, Stage)] =
    &[("test", test::run), ("deny", deny::run), ("peers", peers::run), ("examples", examples::run)];

pub(crate) fn run(workspace: &Workspace, args: &[String]) -> Result<()> {
    args::none(args)?;
    let mut times = Vec::new();
    for (name, stage) in STAGES {
        let started = Instant::now();
        stage(workspace, &[]).with_context(|| format!("stage {name}"))?;
        times.push(format!("{name} {:.1} s", started.elapsed().as_secs_f64()));
    }
    println!("wall time: {}", times.join(", "));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ci_runs_the_same_stages_in_the_same_order() {
        let script = Workspace::here().unwrap().read(".ci/run").unwrap();
        let called: Vec<&str> =
            script.lines().filter_map(|line| line.trim().strip_prefix("cargo xtask ")).collect();
        let stages: Vec<&str> = STAGES.iter().map(|(name, _)| *name).collect();
        assert_eq!(called, stages);
    }
}
