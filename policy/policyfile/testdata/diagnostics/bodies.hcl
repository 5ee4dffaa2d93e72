sandbox "ci" {
  allow "api.example.com" {
    graphql {
      operations = ["querry", "mutation"]
      field      = ["viewer"]
      max        = "2MiB"
    }
  }
  allow "mcp.example.com" {
    jsonrpc {
      tools = ["search"]
    }
    jsonrpc {
      methods = []
    }
  }
  deny "other.example.com" {
    jsonrpc { methods = ["ping"] }
  }
}
