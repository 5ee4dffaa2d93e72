# Reading the repositories of one owner on GitHub, with a token that the
# sandbox never sees. Nothing can be written: the methods that write are
# refused, and so is every other owner's path.

secret "GITHUB_TOKEN" {
  hosts       = ["api.github.com"]
  placeholder = "ghp_{rand:36}" # clients look at the token's form
  source "env" { name = "GITHUB_TOKEN" }
}

sandbox "reader" {
  # Repositories, issues and pull requests of acme.
  allow "api.github.com" {
    access = "read"
    paths  = ["/repos/acme/**"]
    inject = ["GITHUB_TOKEN"]
  }
  # Single files of acme's public repositories.
  allow "raw.githubusercontent.com" {
    access = "read"
    paths  = ["/acme/**"]
  }
}
