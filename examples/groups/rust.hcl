# Rust crates and toolchains, for installing and never for publishing.
group "rust" {
  # The index of crates.
  allow "index.crates.io" { access = "read" }
  # The crates.
  allow "static.crates.io" { access = "read" }
  # Toolchains for rustup.
  allow "static.rust-lang.org" { access = "read" }
}
