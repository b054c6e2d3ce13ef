//! The picture of a run: faults by area, delivery latency and wrong dots over one line of time.

use std::fmt::Write;

use anyhow::Result;

use super::page::{Run, percentile};
use crate::nemesis::kind::Area;

const WIDTH: f64 = 1200.0;
const LEFT: f64 = 110.0;
const LANE: f64 = 18.0;
const TOP: f64 = 40.0;
const PLOT: f64 = 150.0;
const GAP: f64 = 40.0;

const AREAS: [(Area, &str, &str); 5] = [
    (Area::Gateways, "gateways", "#c0392b"),
    (Area::Dispatchers, "dispatchers", "#d68910"),
    (Area::Reapers, "reapers", "#7d3c98"),
    (Area::Redis, "Redis", "#2471a3"),
    (Area::Etcd, "etcd", "#138d75"),
];

struct Axis {
    from: u64,
    to: u64,
}

impl Axis {
    fn x(&self, at: u64) -> f64 {
        let span = (self.to - self.from).max(1) as f64;
        LEFT + (at.clamp(self.from, self.to) - self.from) as f64 / span * (WIDTH - LEFT - 20.0)
    }
}

/// A scalable picture.
pub(super) fn draw(run: &Run) -> Result<String> {
    let last = run.wrong.last().map_or(1, |(at, _)| *at);
    let axis = Axis {
        from: run.wrong.first().map_or(0, |(at, _)| *at),
        to: run
            .struck
            .iter()
            .map(|s| s.end)
            .max()
            .unwrap_or(0)
            .max(last),
    };
    let lanes = TOP + LANE * AREAS.len() as f64;
    let latency = lanes + GAP;
    let dots = latency + PLOT + GAP;
    let height = dots + PLOT + GAP;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
         <text x=\"{LEFT}\" y=\"20\" font-size=\"15\">seed {}: {} clients, {} faults, \
         {} violations</text>\n",
        run.seed,
        run.clients,
        run.struck.len(),
        run.violations.len()
    );
    faults(&mut svg, run, &axis)?;
    let series = by_second(&run.figures.deliveries);
    frame(
        &mut svg,
        latency,
        "delivery, ms",
        &["1", "10", "100", "1,000", "10,000"],
    )?;
    let log = |ms: u64| (ms.max(1) as f64).log10() / 4.0;
    for (values, colour, name) in [
        (2, "#e74c3c", "longest"),
        (1, "#f5b041", "p99"),
        (0, "#2471a3", "p50"),
    ] {
        let points = series
            .iter()
            .map(|(at, three)| (*at, log(three[values]).min(1.0)));
        line(&mut svg, &axis, latency, points, colour, name)?;
    }
    let most = run.wrong.iter().map(|(_, n)| *n).max().unwrap_or(0).max(1);
    frame(&mut svg, dots, "wrong dots", &["0", &most.to_string()])?;
    let points = run
        .wrong
        .iter()
        .map(|(at, n)| (*at, *n as f64 / most as f64));
    line(
        &mut svg,
        &axis,
        dots,
        points,
        "#c0392b",
        "over all gateways, grace included",
    )?;
    minutes(&mut svg, &axis, dots + PLOT)?;
    svg.push_str("</svg>\n");
    Ok(svg)
}

fn faults(svg: &mut String, run: &Run, axis: &Axis) -> Result<()> {
    for (n, (area, name, colour)) in AREAS.into_iter().enumerate() {
        let y = TOP + LANE * n as f64;
        writeln!(
            svg,
            "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{name}</text>",
            LEFT - 8.0,
            y + 12.0
        )?;
        for one in run.struck.iter().filter(|s| s.kind.touches() == area) {
            let (from, to) = (axis.x(one.begin), axis.x(one.end));
            writeln!(
                svg,
                "<rect x=\"{from:.1}\" y=\"{y}\" width=\"{:.1}\" height=\"{}\" fill=\"{colour}\" \
                 fill-opacity=\"0.8\"><title>{} ({})</title></rect>",
                (to - from).max(1.5),
                LANE - 4.0,
                one.kind.name().replace('_', " "),
                one.target
            )?;
        }
    }
    Ok(())
}

/// Of each second: the median, the 99th percentile and the longest.
fn by_second(deliveries: &[(u64, u64)]) -> Vec<(u64, [u64; 3])> {
    let mut seconds = std::collections::BTreeMap::<u64, Vec<u64>>::new();
    for (at, took) in deliveries {
        seconds.entry(at / 1000).or_default().push(*took);
    }
    let three = |mut took: Vec<u64>| {
        took.sort_unstable();
        [500, 990, 1000].map(|p| percentile(&took, p))
    };
    let of = |(second, took)| (second * 1000 + 500, three(took));
    seconds.into_iter().map(of).collect()
}

fn frame(svg: &mut String, top: f64, name: &str, marks: &[&str]) -> Result<()> {
    writeln!(svg, "<text x=\"{LEFT}\" y=\"{}\">{name}</text>", top - 6.0)?;
    let steps = (marks.len() - 1).max(1) as f64;
    for (n, mark) in marks.iter().enumerate() {
        let y = top + PLOT - PLOT * n as f64 / steps;
        writeln!(
            svg,
            "<line x1=\"{LEFT}\" x2=\"{}\" y1=\"{y:.1}\" y2=\"{y:.1}\" stroke=\"#ddd\"/>\
             <text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{mark}</text>",
            WIDTH - 20.0,
            LEFT - 8.0,
            y + 4.0
        )?;
    }
    Ok(())
}

fn line(
    svg: &mut String,
    axis: &Axis,
    top: f64,
    points: impl Iterator<Item = (u64, f64)>,
    colour: &str,
    name: &str,
) -> Result<()> {
    write!(svg, "<polyline fill=\"none\" stroke=\"{colour}\" points=\"")?;
    for (at, part) in points {
        write!(svg, "{:.1},{:.1} ", axis.x(at), top + PLOT * (1.0 - part))?;
    }
    writeln!(svg, "\"><title>{name}</title></polyline>")?;
    Ok(())
}

fn minutes(svg: &mut String, axis: &Axis, y: f64) -> Result<()> {
    let mut at = axis.from.div_ceil(60_000) * 60_000;
    while at <= axis.to {
        let x = axis.x(at);
        writeln!(
            svg,
            "<text x=\"{x:.1}\" y=\"{}\" text-anchor=\"middle\">{} min</text>",
            y + 18.0,
            at / 60_000
        )?;
        at += 60_000;
    }
    Ok(())
}
