//! The image, as far as it can be held to without building it: what the Dockerfile says is what the
//! chart counts on. `make release-check` builds the binary as it does.

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::{
    contract::nodes,
    tools::{list, root, tools},
};

#[tokio::test]
async fn the_image_is_what_the_chart_counts_on() -> Result<()> {
    let Some(tools) = tools().await? else {
        return Ok(());
    };
    let dockerfile = std::fs::read_to_string(root().join("deploy/Dockerfile"))?;
    let says = |word: &str| {
        let line = dockerfile.lines().rev().find_map(|l| l.strip_prefix(word));
        line.with_context(|| format!("the Dockerfile has no {word}"))
    };
    let render = tools.render("production").await?;
    for (name, spec) in nodes(render) {
        let container = &spec["containers"][0];
        let entry: Value = serde_json::from_str(says("ENTRYPOINT ")?)?;
        ensure!(entry == container["command"], "{name}: {entry}");
        let user = spec["securityContext"]["runAsUser"].to_string();
        ensure!(says("USER ")?.split(':').next() == Some(&user), "{name}");
        let exposed: Vec<_> = says("EXPOSE ")?.split(' ').collect();
        for port in list(&container["ports"]) {
            let port = port["containerPort"].to_string();
            ensure!(exposed.contains(&port.as_str()), "{name}: {port}");
        }
        let hook = &container["lifecycle"]["preStop"]["exec"]["command"];
        ensure!(
            hook.is_null() || hook[0] == container["command"][0],
            "{name}"
        );
    }
    ensure!(says("FROM ")?.contains("distroless"), "a base with a shell");
    ensure!(dockerfile.contains("deploy/build.sh"));
    let makefile = std::fs::read_to_string(root().join("Makefile"))?;
    ensure!(makefile.contains("release-check:"), "no make release-check");
    for script in ["deploy/build.sh", "deploy/release-check.sh"] {
        let mut bash = tokio::process::Command::new("bash");
        let output = bash.arg("-n").arg(root().join(script)).output().await?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        ensure!(output.status.success(), "{script}: {said}");
    }
    Ok(())
}
