//! Fields on a grid as a PNG: panels side by side, black for the lowest value by way of red and yellow to white for the
//! highest.

use std::fs::File;
use std::io;
use std::path::Path;

/// White pixels between two panels.
const GAP: usize = 8;

/// Draws each of `panels`, `n * n` values in natural order (x fastest, y upwards), with `zoom * zoom` pixels per point.
/// `range` is the range from black to white.
pub(crate) fn write(path: &Path, panels: &[Vec<f64>], n: usize, zoom: usize, range: (f64, f64)) -> io::Result<()> {
    let side = n * zoom;
    let width = panels.len() * (side + GAP) - GAP;
    let mut pixels = vec![255u8; 3 * width * side];
    for (p, panel) in panels.iter().enumerate() {
        for row in 0..side {
            for column in 0..side {
                // The picture's first row is the highest y.
                let value = panel[(n - 1 - row / zoom) * n + column / zoom];
                let at = 3 * (row * width + p * (side + GAP) + column);
                pixels[at..at + 3].copy_from_slice(&colour((value - range.0) / (range.1 - range.0)));
            }
        }
    }
    let mut encoder = png::Encoder::new(File::create(path)?, width as u32, side as u32);
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_depth(png::BitDepth::Eight);
    let mut writer = encoder.write_header()?;
    writer.write_image_data(&pixels)?;
    Ok(writer.finish()?)
}

/// Red rises over the first third, green over the second, blue over the last.
fn colour(t: f64) -> [u8; 3] {
    [0.0, 1.0, 2.0].map(|begin| ((3.0 * t - begin).clamp(0.0, 1.0) * 255.0) as u8)
}
