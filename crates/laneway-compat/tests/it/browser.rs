//! One instance drives a real tab of a headless browser.
