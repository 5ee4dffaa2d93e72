# GitHub for writing: issues, pull requests, releases, pushes. Beside
# github_read; name the repositories in a rule of your own where you can.
group "github_write" {
  # The REST and GraphQL API.
  allow "api.github.com" { methods = ["GET", "POST", "PUT", "PATCH", "DELETE"] }
  # Files of releases, for uploading.
  allow "uploads.github.com" { methods = ["POST"] }
  # Clones and pushes over HTTPS, LFS locks among them.
  git "github.com/*/*" { access = "write" }
}
