sandbox "ci" {
  allow "a.example" { reason = "‮evil[31m" }
	allow "https://b.example" {}
}
