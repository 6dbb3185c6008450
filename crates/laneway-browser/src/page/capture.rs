//! Screenshots and PDFs.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::{PageError, Run};

/// The highest and widest screenshot, in pixels. Chromium repeats the image beyond this.
const PIXELS_MAX: f64 = 16_384.0;

impl Run<'_> {
    pub(super) async fn screenshot(
        &self,
        selector: Option<&str>,
        full_page: bool,
        format: &str,
        quality: Option<u8>,
    ) -> Result<Value, PageError> {
        let mut params = json!({"format": format});
        if let Some(quality) = quality.filter(|_| format != "png") {
            params["quality"] = quality.into();
        }
        let clip = match selector {
            Some(selector) => Some(self.box_of(selector).await?),
            None if full_page => {
                let size = self.ask_page("size", json!([])).await?;
                Some(json!({"x": 0, "y": 0, "width": size["width"], "height": size["height"]}))
            }
            None => None,
        };
        if let Some(mut clip) = clip {
            for side in ["width", "height"] {
                clip[side] = clip[side].as_f64().unwrap_or(1.0).clamp(1.0, PIXELS_MAX).into();
            }
            clip["scale"] = 1.into();
            params["clip"] = clip;
            params["captureBeyondViewport"] = true.into();
        }
        let captured = self.call("Page.captureScreenshot", params).await?;
        self.captured(captured, format)
    }

    pub(super) async fn pdf(
        &self,
        landscape: bool,
        background: bool,
        scale: f64,
        pages: &str,
    ) -> Result<Value, PageError> {
        let params = json!({
            "landscape": landscape, "printBackground": background, "scale": scale, "pageRanges": pages,
        });
        let printed = self.call("Page.printToPDF", params).await?;
        self.captured(printed, "pdf")
    }

    fn captured(&self, mut captured: Value, format: &str) -> Result<Value, PageError> {
        let data = captured["data"].take();
        let bytes = data.as_str().map_or(0, |text| text.len() / 4 * 3);
        if bytes > self.limits.capture_bytes {
            return Err(PageError::ResultTooLarge { bytes_max: self.limits.capture_bytes });
        }
        Ok(json!({"format": format, "base64": data}))
    }
}

/// The bytes of a screenshot or PDF, and their content type.
pub(crate) fn bytes_of(result: &Value) -> Option<(Vec<u8>, &'static str)> {
    let content_type = match result["format"].as_str()? {
        "png" => "image/png",
        "jpeg" => "image/jpeg",
        "webp" => "image/webp",
        "pdf" => "application/pdf",
        _ => return None,
    };
    Some((STANDARD.decode(result["base64"].as_str()?).ok()?, content_type))
}
