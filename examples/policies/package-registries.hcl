# Installing packages and nothing else. Load it with the groups:
#
#   cd examples
#   sallyport run --policy policies/package-registries.hcl --policy groups -- npm ci

sandbox "build" {
  use = ["python", "javascript", "go", "rust"]
}
