test "nothing" {
  sandbox = "ci"
}
test "lines" {
  sandbox = "ci"
  allow   = ["https://api.example.com/", "GET api.example.com"]
}
test "half" {
  sandbox = "ci"
  request {
    method = "GET "
    url    = "api.example.com"
  }
}
test "expects" {
  sandbox = "ci"
  request { url = "https://api.example.com/" }
  expect {
    verdict = "denied"
    reason  = "placeholder_leek"
  }
}
alert "exfiltration" {
  reasons   = ["placeholder_leak", "resolves_metdata"]
  severity  = "urgent"
  threshold = 0
  window    = "0s"
  per       = ["sandbox", "path"]
}
notify "ops" {
}
notify "chat" {
  slak { url_secret = "SLACK_WEBHOOK" }
}
mute "works" {
  hosts = ["api.example.com"]
}
