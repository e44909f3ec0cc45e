//! A plot of a few lines as SVG: no crate for that, and no more than the reports need.

use std::fmt::Write as _;

const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 360.0;
const LEFT: f64 = 60.0;
const RIGHT: f64 = 150.0;
const TOP: f64 = 40.0;
const BOTTOM: f64 = 50.0;

/// Told apart also by who sees no red or green.
const COLOURS: [&str; 7] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000"];

/// A line: its name, and its points from left to right.
pub(super) type Line = (String, Vec<(f64, f64)>);

/// The lines over a horizontal axis that doubles from mark to mark, the vertical one from 0.
pub(super) fn lines(title: &str, horizontal: &str, vertical: &str, lines: &[Line]) -> String {
    let points = || lines.iter().flat_map(|(_, points)| points);
    let least = points().map(|point| point.0).fold(f64::INFINITY, f64::min).max(1.0);
    let most = points().map(|point| point.0).fold(least * 2.0, f64::max);
    let top = points().map(|point| point.1).fold(f64::MIN_POSITIVE, f64::max) * 1.1;
    let x = |value: f64| LEFT + (WIDTH - LEFT - RIGHT) * (value / least).log2() / (most / least).log2();
    let y = |value: f64| HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * value / top;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" \
         font-size=\"12\">\n<rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"white\"/>\n"
    );
    let mut text = |at: (f64, f64), anchor: &str, text: &str| {
        let _ = writeln!(
            out,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"{anchor}\">{}</text>",
            at.0,
            at.1,
            escaped(text)
        );
    };
    text((LEFT, TOP - 16.0), "start", title);
    text(((LEFT + WIDTH - RIGHT) / 2.0, HEIGHT - 12.0), "middle", horizontal);
    text((8.0, TOP), "start", vertical);
    for mark in 0..=4 {
        let value = top * f64::from(mark) / 4.0;
        text((LEFT - 6.0, y(value) + 4.0), "end", &format!("{value:.2}"));
    }
    let mut marks: Vec<f64> = points().map(|point| point.0).collect();
    marks.sort_by(f64::total_cmp);
    marks.dedup();
    for mark in marks {
        text((x(mark), HEIGHT - BOTTOM + 16.0), "middle", &format!("{mark:.0}"));
    }
    for (number, (name, _)) in lines.iter().enumerate() {
        text((WIDTH - RIGHT + 30.0, TOP + 18.0 * number as f64 + 4.0), "start", name);
    }
    let axes = [(LEFT, TOP), (LEFT, HEIGHT - BOTTOM), (WIDTH - RIGHT, HEIGHT - BOTTOM)];
    let _ = writeln!(out, "{}", polyline(&axes, "#444"));
    for (number, (_, points)) in lines.iter().enumerate() {
        let colour = COLOURS[number % COLOURS.len()];
        let points: Vec<_> = points.iter().map(|(at, value)| (x(*at), y(*value))).collect();
        let beside = TOP + 18.0 * number as f64;
        let key = [(WIDTH - RIGHT + 8.0, beside), (WIDTH - RIGHT + 26.0, beside)];
        let _ = writeln!(out, "{}\n{}", polyline(&points, colour), polyline(&key, colour));
    }
    out.push_str("</svg>\n");
    out
}

fn polyline(points: &[(f64, f64)], colour: &str) -> String {
    let points: Vec<_> = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
    format!(
        "<polyline fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\" points=\"{}\"/>",
        points.join(" ")
    )
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_lie_within_the_picture_and_larger_values_higher() {
        let drawn = lines(
            "a < b",
            "shards",
            "s",
            &[
                ("one".to_owned(), vec![(1.0, 1.0), (8.0, 2.0), (64.0, 4.0)]),
                ("two".to_owned(), vec![(1.0, 0.0), (64.0, 3.0)]),
            ],
        );
        assert!(drawn.contains("a &lt; b") && drawn.contains(">one<") && drawn.contains(">64<"));
        let line = drawn.lines().find(|line| line.contains(COLOURS[0])).unwrap();
        let points = line.split("points=\"").nth(1).unwrap().trim_end_matches("\"/>");
        let points: Vec<(f64, f64)> = points
            .split(' ')
            .map(|point| {
                point.split_once(',').map(|(x, y)| (x.parse().unwrap(), y.parse().unwrap())).unwrap()
            })
            .collect();
        assert_eq!(points.len(), 3);
        assert!(points.windows(2).all(|pair| pair[0].0 < pair[1].0 && pair[0].1 > pair[1].1), "{points:?}");
        assert!(
            points
                .iter()
                .all(|(x, y)| (LEFT..=WIDTH - RIGHT).contains(x) && (TOP..=HEIGHT - BOTTOM).contains(y))
        );
    }
}
