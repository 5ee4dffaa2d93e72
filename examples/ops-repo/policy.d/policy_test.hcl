test "ci reads its own repository and no other" {
  sandbox = "ci-app"
  allow = [
    "GET https://api.github.com/repos/acme/app/pulls",
    "GET https://github.com/acme/app.git/info/refs?service=git-upload-pack",
    "GET https://pypi.org/simple/requests/",
    "GET https://files.pythonhosted.org/packages/x",
  ]
  deny = [
    "POST https://api.github.com/repos/acme/app/issues",
    "GET https://api.github.com/repos/acme/website/pulls",
    "GET https://api.github.com/repos/acme/app/../website/pulls",
    "POST https://github.com/acme/app.git/git-receive-pack",
    "GET https://api.github.com.evil.example/",
    "GET https://tunnel.ngrok.io/",
  ]
}
test "the other ci job" {
  sandbox = "ci-website"
  allow   = ["GET https://api.github.com/repos/acme/website/pulls"]
  deny    = ["GET https://api.github.com/repos/acme/app/pulls"]
}
test "the agent pushes" {
  sandbox = "agent"
  allow = [
    "POST https://github.com/acme/app.git/git-receive-pack",
    "POST https://api.github.com/repos/acme/app/issues/7/comments",
  ]
  deny = ["DELETE https://api.github.com/repos/acme/app/issues/7/comments"]
}
test "the model gets its key" {
  sandbox = "agent"
  request {
    method  = "POST"
    url     = "https://api.openai.com/v1/responses"
    headers = { Authorization = "Bearer $OPENAI_API_KEY" }
  }
  expect {
    verdict = "allow"
    inject  = ["OPENAI_API_KEY"]
  }
}
test "the key goes nowhere else" {
  sandbox = "agent"
  request {
    url     = "https://pypi.org/simple/"
    headers = { Authorization = "Bearer $OPENAI_API_KEY" }
  }
  expect {
    verdict = "deny"
    reason  = "placeholder_leak"
  }
}
