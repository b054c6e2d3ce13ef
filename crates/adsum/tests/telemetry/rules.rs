//! The alert rules and dashboards as files: they say what exists, and each alert has its page.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

pub(crate) fn rules() -> PathBuf {
    root().join("deploy/prometheus/alerts.yaml")
}

pub(crate) fn promtool(args: &[&str], folder: &Path) -> Result<String> {
    let output = Command::new("promtool")
        .args(args)
        .current_dir(folder)
        .output()
        .context("promtool: scripts/deps.sh test installs it")?;
    let said = format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    ensure!(output.status.success(), "promtool {args:?}: {said}");
    Ok(said)
}

/// All queries of all dashboards, with the variables filled in.
pub(crate) fn dashboard_queries() -> Result<Vec<String>> {
    let mut queries = Vec::new();
    for file in fs::read_dir(root().join("deploy/grafana"))? {
        let dashboard: Value = serde_json::from_str(&fs::read_to_string(file?.path())?)?;
        let panels = dashboard["panels"].as_array().context("no panels")?;
        let targets = panels.iter().filter_map(|p| p["targets"].as_array());
        for target in targets.flatten() {
            let query = target["expr"].as_str().context("no expr")?;
            let query = query.replace("$namespace", ".*");
            queries.push(query.replace("$__rate_interval", "10s"));
        }
    }
    ensure!(queries.len() > 40, "{} queries", queries.len());
    Ok(queries)
}

/// `alert` and `expr` of every rule, read line by line: enough for a file of our own.
pub(crate) fn alerts() -> Result<Vec<(String, String, String)>> {
    let text = fs::read_to_string(rules())?;
    let mut alerts = Vec::new();
    for rule in text.split("- alert: ").skip(1) {
        let name = rule.lines().next().unwrap_or_default().trim().to_owned();
        let (_, expr) = rule.split_once("expr:").context("no expr")?;
        let end = ["\n        for:", "\n        labels:"];
        let end = end.iter().filter_map(|end| expr.find(end)).min();
        let expr = &expr[..end.context("no end")?];
        let expr = expr.trim().trim_start_matches('|').replace('\n', " ");
        let (_, page) = rule.split_once("runbook_url: ").context("no runbook")?;
        let page = page.lines().next().unwrap_or_default().trim().to_owned();
        alerts.push((name, expr.trim().to_owned(), page));
    }
    Ok(alerts)
}

/// Names of series in a query.
pub(crate) fn names(query: &str) -> BTreeSet<String> {
    let word = |c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == ':');
    let ours = |w: &&str| {
        w.starts_with("adsum_")
            || w.starts_with("process_")
            || w.starts_with("db_client")
            || *w == "up"
    };
    query.split(word).filter(ours).map(str::to_owned).collect()
}

#[test]
fn the_rules_are_rules_and_each_alert_fires() -> Result<()> {
    let folder = rules();
    let folder = folder.parent().context("a folder")?;
    println!("{}", promtool(&["check", "rules", "alerts.yaml"], folder)?);
    println!(
        "{}",
        promtool(&["test", "rules", "alerts_test.yaml"], folder)?
    );
    let tests = fs::read_to_string(folder.join("alerts_test.yaml"))?;
    // Made to fire with labels and texts, not only to stay silent.
    for (alert, _, _) in alerts()? {
        let fires = tests.split("alertname: ").skip(1).any(|test| {
            let (name, rest) = test.split_once(['\n', ',']).unwrap_or((test, ""));
            name == alert && rest.trim_start().starts_with("exp_alerts:\n")
        });
        ensure!(fires, "no test makes {alert} fire");
    }
    Ok(())
}

#[test]
fn every_alert_has_a_page_and_every_page_an_alert() -> Result<()> {
    let mut pages = BTreeSet::new();
    for (alert, _, page) in alerts()? {
        let text = fs::read_to_string(root().join(&page)).with_context(|| page.clone())?;
        ensure!(
            text.starts_with('#') && text.contains(&alert),
            "{page}: {alert}"
        );
        for part in ["**What it says.**", "users", "## Look", "## Do"] {
            ensure!(text.contains(part), "{page} has no {part}");
        }
        pages.insert(page);
    }
    for file in fs::read_dir(root().join("docs/runbooks"))? {
        let name = file?.file_name().to_string_lossy().into_owned();
        let page = format!("docs/runbooks/{name}");
        ensure!(
            name == "README.md" || pages.contains(&page),
            "{page} is nobody's"
        );
    }
    Ok(())
}

/// The chart carries copies, since a chart is a package of its own.
#[test]
fn the_chart_has_the_same_rules_and_dashboards() -> Result<()> {
    let files = root().join("charts/adsum/files");
    let same = |ours: &str, theirs: &str| -> Result<()> {
        let ours = fs::read_to_string(root().join(ours))?;
        let copy = fs::read_to_string(files.join(theirs)).with_context(|| theirs.to_owned())?;
        ensure!(ours == copy, "{theirs} differs: copy it again");
        Ok(())
    };
    same("deploy/prometheus/alerts.yaml", "alerts/adsum.yaml")?;
    same("deploy/grafana/adsum.json", "dashboards/adsum.json")
}
