//! The tools that are not ours (Helm, the schemas of Kubernetes, checkov), and renders of the chart
//! made with them.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    process::Output,
    time::Duration,
};

use adsum_tests::TestDir;
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use tokio::{process::Command, sync::OnceCell, time::timeout};

/// What `install.sh` says when there is no way to install.
const CANNOT: i32 = 3;

pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

pub(crate) fn chart() -> PathBuf {
    root().join("charts/adsum")
}

/// An environment with the tools; `None`, said aloud, where they can't be installed.
pub(crate) async fn tools() -> Result<Option<&'static Tools>> {
    static TOOLS: OnceCell<Option<Tools>> = OnceCell::const_new();
    let install = || async {
        let environment = Path::new(env!("CARGO_TARGET_TMPDIR")).join("chart");
        let mut install = Command::new(root().join("scripts/chart/install.sh"));
        let done = run(install.arg(&environment), Duration::from_secs(600)).await?;
        if done.status.code() == Some(CANNOT) {
            println!("SKIPPED, the chart: {}", text(&done).trim());
            return Ok(None);
        }
        ensure!(done.status.success(), "{}", text(&done));
        let tools = Tools {
            environment,
            dir: TestDir::new("chart")?,
            renders: OnceCell::new(),
        };
        anyhow::Ok(Some(tools))
    };
    Ok(TOOLS.get_or_try_init(install).await?.as_ref())
}

pub(crate) struct Tools {
    environment: PathBuf,
    dir: TestDir,
    renders: OnceCell<BTreeMap<String, Render>>,
}

impl Tools {
    /// Every set of values, linted and rendered.
    pub(crate) async fn renders(&self) -> Result<&BTreeMap<String, Render>> {
        let render = || async {
            let out = self.dir.folder("renders")?;
            let (out_text, chart) = (out.display().to_string(), chart().display().to_string());
            print!("{}", self.chart_py(&["render", &chart, &out_text]).await?);
            let mut renders = BTreeMap::new();
            for entry in std::fs::read_dir(&out)? {
                let file = entry?.path();
                if file.extension().is_some_and(|e| e == "json") {
                    let name = file.file_stem().context("no name")?.to_string_lossy();
                    let render = Render::parse(&std::fs::read_to_string(&file)?)?;
                    renders.insert(name.into_owned(), render);
                }
            }
            anyhow::Ok(renders)
        };
        self.renders.get_or_try_init(render).await
    }

    pub(crate) async fn render(&self, name: &str) -> Result<&Render> {
        let found = self.renders().await?.get(name);
        found.with_context(|| format!("no set of values is called {name}"))
    }

    /// One render of these values; `files` in them names files of values below them.
    pub(crate) async fn render_of(&self, name: &str, values: &Value) -> Result<Render> {
        let file = self.dir.path().join(format!("{name}.values.json"));
        std::fs::write(&file, values.to_string())?;
        let (chart, file) = (chart().display().to_string(), file.display().to_string());
        Render::parse(&self.chart_py(&["one", &chart, &file]).await?)
    }

    /// The file of a set, for tools that read YAML.
    pub(crate) fn yaml(&self, name: &str) -> String {
        let file = self.dir.path().join("renders").join(name);
        format!("{}.yaml", file.display())
    }

    /// What Helm says to each of these values.
    pub(crate) async fn refusals(&self, cases: &Value) -> Result<BTreeMap<String, Option<String>>> {
        let file = self.dir.path().join("cases.json");
        std::fs::write(&file, cases.to_string())?;
        let (chart, file) = (chart().display().to_string(), file.display().to_string());
        let said = self.chart_py(&["refuse", &chart, &file]).await?;
        Ok(serde_json::from_str(&said)?)
    }

    pub(crate) async fn chart_py(&self, args: &[&str]) -> Result<String> {
        let mut command = self.tool("python3");
        command
            .arg(root().join("scripts/chart/chart.py"))
            .args(args);
        let output = run(&mut command, Duration::from_secs(120)).await?;
        ensure!(output.status.success(), "{args:?}: {}", text(&output));
        Ok(String::from_utf8(output.stdout)?)
    }

    pub(crate) fn tool(&self, name: &str) -> Command {
        let mut command = Command::new(self.environment.join("bin").join(name));
        // Nothing is written beside the sources.
        command.env("PYTHONDONTWRITEBYTECODE", "1");
        command
    }
}

pub(crate) async fn run(command: &mut Command, limit: Duration) -> Result<Output> {
    let output = timeout(limit, command.kill_on_drop(true).output()).await;
    let program = command.as_std().get_program().display().to_string();
    Ok(output.with_context(|| format!("not within {limit:?}: {program}"))??)
}

pub(crate) fn text(output: &Output) -> String {
    let (out, err) = (&output.stdout, &output.stderr);
    format!(
        "{}{}",
        String::from_utf8_lossy(out),
        String::from_utf8_lossy(err)
    )
}

/// The objects that one `helm install` would make.
#[derive(Debug)]
pub(crate) struct Render {
    pub(crate) objects: Vec<Value>,
    pub(crate) notes: String,
}

impl Render {
    fn parse(json: &str) -> Result<Self> {
        let mut made: Value = serde_json::from_str(json).context("a render")?;
        let objects = made["objects"].take();
        Ok(Self {
            objects: serde_json::from_value(objects)?,
            notes: made["notes"].as_str().unwrap_or_default().to_owned(),
        })
    }

    pub(crate) fn of_kind<'a>(&'a self, kind: &'a str) -> impl Iterator<Item = &'a Value> {
        self.objects.iter().filter(move |o| o["kind"] == kind)
    }

    pub(crate) fn find(&self, kind: &str, name: &str) -> Result<&Value> {
        let wanted = |o: &&Value| o["kind"] == kind && o["metadata"]["name"] == name;
        let found = self.objects.iter().find(wanted);
        found.with_context(|| format!("no {kind} {name}"))
    }

    /// Specifications of pods, with what they belong to.
    pub(crate) fn pods(&self) -> Vec<(String, &Value)> {
        let mut pods = Vec::new();
        for object in &self.objects {
            let template = &object["spec"]["template"];
            let spec = match object["kind"].as_str() {
                Some("Pod") => &object["spec"],
                _ if template.is_object() => &template["spec"],
                _ => continue,
            };
            let name = format!(
                "{} {}",
                object["kind"].as_str().unwrap(),
                object["metadata"]["name"].as_str().unwrap()
            );
            pods.push((name, spec));
        }
        pods
    }

    /// The binary's configuration file.
    pub(crate) fn config(&self) -> Result<toml::Table> {
        let map = self
            .of_kind("ConfigMap")
            .find(|o| o["data"]["adsum.toml"].is_string());
        let text = map.context("no configuration")?["data"]["adsum.toml"].as_str();
        Ok(text.unwrap_or_default().parse()?)
    }
}

/// The items of a list, or none.
pub(crate) fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// A text, or an empty one.
pub(crate) fn word(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}
