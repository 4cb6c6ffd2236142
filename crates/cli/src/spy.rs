//! The spy plot as a PNG file.

use spandrel_formats::spy::Picture;

use crate::failure::{Failure, Result};

/// The picture as a PNG file.
///
/// # Errors
/// Kind `io`, where the encoder refuses.
pub(crate) fn png(picture: &Picture) -> Result<Vec<u8>> {
    let refuse = |error: png::EncodingError| Failure::new("io", format!("cannot encode the spy plot: {error}"));
    let mut file = Vec::new();
    let mut encoder = png::Encoder::new(&mut file, picture.width as u32, picture.height as u32);
    encoder.set_color(png::ColorType::Grayscale);
    encoder.set_depth(png::BitDepth::Eight);
    let mut writer = encoder.write_header().map_err(refuse)?;
    writer.write_image_data(&picture.pixels).map_err(refuse)?;
    writer.finish().map_err(refuse)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use spandrel_formats::{Csr, spy};

    #[test]
    fn every_picture_is_a_file() {
        for (nrows, ncols) in [(0, 0), (0, 5), (1, 4000), (3, 3)] {
            let a = Csr::<f64>::new(nrows, ncols, vec![0; nrows + 1], vec![], vec![]).unwrap();
            assert!(super::png(&spy::draw(&a)).unwrap().starts_with(b"\x89PNG"));
        }
    }
}
