//! Latency against load, both in powers of ten: a line for half of the diffs and one for all but a
//! hundredth, for each that was measured.

use std::fmt::Write;

use anyhow::Result;
use serde_json::Value;

const WIDTH: f64 = 900.0;
const HEIGHT: f64 = 520.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 200.0;
const TOP: f64 = 50.0;
const BOTTOM: f64 = 60.0;

/// Diffs a second, and ms.
const LOADS: (f64, f64) = (2_000.0, 250_000.0);
const TIMES: (f64, f64) = (0.2, 2_000.0);

const COLOURS: [&str; 5] = ["#2471a3", "#138d75", "#d68910", "#c0392b", "#7d3c98"];

fn x(load: f64) -> f64 {
    let part = (load / LOADS.0).ln() / (LOADS.1 / LOADS.0).ln();
    LEFT + part.clamp(0.0, 1.0) * (WIDTH - LEFT - RIGHT)
}

fn y(ms: f64) -> f64 {
    let part = (ms / TIMES.0).ln() / (TIMES.1 / TIMES.0).ln();
    HEIGHT - BOTTOM - part.clamp(0.0, 1.0) * (HEIGHT - TOP - BOTTOM)
}

/// A scalable picture.
pub(super) fn draw(results: &[(&str, Value)]) -> Result<String> {
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
         <text x=\"{LEFT}\" y=\"25\" font-size=\"15\">From a change to its delivery, 100 rooms of \
         100, two cores for everything</text>\n"
    );
    axes(&mut svg)?;
    for (n, (name, measured)) in results.iter().enumerate() {
        let colour = COLOURS[n % COLOURS.len()];
        for (which, dash) in [("p50", ""), ("p99", " stroke-dasharray=\"5 4\"")] {
            line(&mut svg, measured, which, colour, dash)?;
        }
        let at = TOP + 20.0 * n as f64;
        writeln!(
            svg,
            "<text x=\"{}\" y=\"{at}\" fill=\"{colour}\">{name}</text>",
            WIDTH - RIGHT + 20.0
        )?;
    }
    writeln!(
        svg,
        "<text x=\"{}\" y=\"{}\" fill=\"#555\">whole: p50, dashed: p99</text>\n</svg>",
        WIDTH - RIGHT + 20.0,
        TOP + 120.0
    )?;
    Ok(svg)
}

fn axes(svg: &mut String) -> Result<()> {
    let (right, bottom) = (WIDTH - RIGHT, HEIGHT - BOTTOM);
    for ms in [
        0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0,
    ] {
        let at = y(ms);
        writeln!(
            svg,
            "<path d=\"M{LEFT} {at:.1}H{right}\" stroke=\"#ddd\"/>\
             <text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{ms} ms</text>",
            LEFT - 6.0,
            at + 4.0
        )?;
    }
    for load in [
        2_500.0, 5_000.0, 10_000.0, 25_000.0, 50_000.0, 100_000.0, 200_000.0,
    ] {
        let at = x(load);
        writeln!(
            svg,
            "<path d=\"M{at:.1} {TOP}V{bottom}\" stroke=\"#eee\"/>\
             <text x=\"{at:.1}\" y=\"{}\" text-anchor=\"middle\">{load}</text>",
            bottom + 18.0
        )?;
    }
    writeln!(
        svg,
        "<text x=\"{:.1}\" y=\"{}\" text-anchor=\"middle\">delivered diffs a second</text>",
        f64::midpoint(LEFT, right),
        HEIGHT - 15.0
    )?;
    Ok(())
}

fn line(svg: &mut String, measured: &Value, which: &str, colour: &str, dash: &str) -> Result<()> {
    let steps = measured["ladder"]["steps"].as_array();
    let mut path = String::new();
    for step in steps.into_iter().flatten() {
        let load = step["diffs_per_s"].as_f64();
        if let (Some(load), Some(ms)) = (load, step["latency_ms"][which].as_f64()) {
            let to = if path.is_empty() { 'M' } else { 'L' };
            write!(path, "{to}{:.1} {:.1}", x(load), y(ms))?;
            writeln!(
                svg,
                "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"3\" fill=\"{colour}\"/>",
                x(load),
                y(ms)
            )?;
        }
    }
    writeln!(
        svg,
        "<path d=\"{path}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"{dash}/>"
    )?;
    Ok(())
}
