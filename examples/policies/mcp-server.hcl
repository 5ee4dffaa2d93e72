# An agent that may ask one MCP server for some tools, and read GitHub by
# GraphQL. What a request asks for is in its body, so the body decides.
org {
  # Which tools is for each sandbox to say.
  allow "mcp.example.com" { paths = ["/mcp"] }
  # Nobody changes anything by GraphQL.
  allow "api.github.com" {
    paths = ["/graphql"]
    graphql { operations = ["query"] }
  }
}

secret "GITHUB_TOKEN" {
  hosts       = ["api.github.com"]
  placeholder = "ghp_{rand:36}"
  source "env" { name = "GITHUB_TOKEN" }
}

sandbox "agent" {
  # Calls. The tools that the server has besides are refused.
  allow "mcp.example.com" {
    paths = ["/mcp"]
    jsonrpc {
      methods   = ["initialize", "notifications/*", "ping", "tools/list", "tools/call"]
      tools     = ["search", "docs_*"]
      responses = true
    }
  }
  # The stream of the server's own messages, and the end of a session.
  allow "mcp.example.com" {
    paths   = ["/mcp"]
    methods = ["GET", "DELETE"]
  }
  # No mutation, and no other root field: the token may do more than this.
  allow "api.github.com" {
    paths  = ["/graphql"]
    inject = ["GITHUB_TOKEN"]
    graphql {
      operations = ["query"]
      fields     = ["viewer", "repository", "rateLimit"]
    }
  }
}

test "a tool that is listed, and no other" {
  sandbox = "agent"
  allow   = ["GET https://mcp.example.com/mcp", "DELETE https://mcp.example.com/mcp"]
  deny    = ["POST https://mcp.example.com/mcp", "GET https://mcp.example.com/"]
  request {
    method  = "POST"
    url     = "https://mcp.example.com/mcp"
    headers = { Content-Type = "application/json" }
    body    = "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\",\"params\":{\"name\":\"search\",\"arguments\":{}}}"
  }
  expect { verdict = "allow" }
}

test "one message of a batch that is not listed" {
  sandbox = "agent"
  request {
    method  = "POST"
    url     = "https://mcp.example.com/mcp"
    headers = { Content-Type = "application/json" }
    body    = "[{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"},{\"jsonrpc\":\"2.0\",\"id\":2,\"method\":\"tools/call\",\"params\":{\"name\":\"shell\"}}]"
  }
  expect {
    verdict = "deny"
    reason  = "method_not_allowed"
  }
}

test "a query, with the token" {
  sandbox = "agent"
  request {
    method = "POST"
    url    = "https://api.github.com/graphql"
    headers = {
      Authorization = "Bearer $GITHUB_TOKEN"
      Content-Type  = "application/json"
    }
    body = "{\"query\":\"query($o: String!) { repository(owner: $o, name: \\\"app\\\") { id } }\"}"
  }
  expect {
    verdict = "allow"
    inject  = ["GITHUB_TOKEN"]
  }
}

test "no mutation" {
  sandbox = "agent"
  deny    = ["GET https://api.github.com/graphql?query={viewer}"]
  request {
    method  = "POST"
    url     = "https://api.github.com/graphql"
    headers = { Content-Type = "application/json" }
    body    = "{\"query\":\"query A { viewer { id } } mutation B { addStar(input: {}) { clientMutationId } }\",\"operationName\":\"A\"}"
  }
  expect {
    verdict = "deny"
    reason  = "method_not_allowed"
  }
}
