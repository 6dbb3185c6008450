//! The pages that the browsers of the demo visit: a small shop on a free port of this machine.

use axum::Router;
use axum::extract::Path;
use axum::http::StatusCode;
use axum::response::Html;
use axum::routing::get;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

/// What the shop sells: the name and the price in cents.
const GOODS: [(&str, u32); 6] = [
    ("Lantern", 1_990),
    ("Compass", 2_450),
    ("Kettle", 3_200),
    ("Rope, 20 m", 1_275),
    ("Blanket", 4_100),
    ("Pocket knife", 2_899),
];

/// How the pages look.
const STYLE: &str = "body{font:17px/1.5 sans-serif;margin:3em auto;max-width:40em;color:#223}h1{color:#164}\
    li{margin:.4em 0}button,input{font:inherit;padding:.3em .8em}#cart{margin-top:1em;padding:.6em 1em;background:#eef6ee}";

/// How many things the shop sells.
pub const GOODS_COUNT: usize = GOODS.len();

/// A shop that is closed when this is dropped.
pub struct Shop {
    url: String,
    serving: JoinHandle<std::io::Result<()>>,
}

impl Shop {
    /// Opens the shop on a free port.
    pub async fn open() -> std::io::Result<Shop> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("http://{}", listener.local_addr()?);
        let pages = Router::new().route("/", get(front)).route("/goods/{number}", get(goods));
        let serving = tokio::spawn(axum::serve(listener, pages).into_future());
        Ok(Shop { url, serving })
    }

    /// Its address, without a slash at the end.
    pub fn url(&self) -> &str {
        &self.url
    }
}

impl Drop for Shop {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

async fn front() -> Html<String> {
    let row = |(number, (name, cents)): (usize, &(&str, u32))| {
        format!("<li><a href=\"/goods/{number}\">{name}</a> {}</li>", price(*cents))
    };
    let rows: String = GOODS.iter().enumerate().map(row).collect();
    page("The shop of the demo", &format!("<ul>{rows}</ul>"))
}

async fn goods(Path(number): Path<usize>) -> (StatusCode, Html<String>) {
    let Some((name, cents)) = GOODS.get(number) else {
        return (StatusCode::NOT_FOUND, page("Not here", "<p>The shop does not sell this.</p>"));
    };
    let body = format!(
        "<p>Price: <b id=\"price\">{}</b></p>\
         <input id=\"count\" type=\"number\" value=\"1\" min=\"1\"> <button id=\"add\">Add to cart</button>\
         <p id=\"cart\" hidden></p>\
         <script>document.getElementById('add').onclick = () => {{\
           const cart = document.getElementById('cart');\
           cart.textContent = document.getElementById('count').value + ' × {name} in the cart';\
           cart.hidden = false;\
         }}</script>",
        price(*cents)
    );
    (StatusCode::OK, page(name, &body))
}

fn page(title: &str, body: &str) -> Html<String> {
    Html(format!(
        "<!doctype html><meta charset=\"utf-8\"><title>{title}</title><style>{STYLE}</style><h1>{title}</h1>{body}"
    ))
}

fn price(cents: u32) -> String {
    format!("{}.{:02} €", cents / 100, cents % 100)
}
