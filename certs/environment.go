package certs

import (
	"maps"
	"slices"
	"strings"
)

// trustKind is what a variable does to a client's trust store.
type trustKind uint8

const (
	trustReplace trustKind = iota + 1 // takes the place of the system's roots: gets the bundle
	trustAdd                          // is added to the client's own roots: gets the CA alone
	trustJava                         // options of the Java virtual machine
)

// trustVariable is one row of the table of variables.
type trustVariable struct {
	name string
	kind trustKind
}

// trustVariables is every variable by which a client is told whom to trust.
// Clients with compiled-in roots and no variable (rustls with webpki-roots,
// pinned certificates) cannot be told: they need a passthrough rule.
//
//	variable                           kind     read by
//	SSL_CERT_FILE                      replace  OpenSSL, Go, Ruby, Python ssl and httpx, uv, rustls-native-certs
//	NIX_SSL_CERT_FILE                  replace  OpenSSL and curl of Nix
//	REQUESTS_CA_BUNDLE                 replace  Python requests, conda, Azure CLI
//	CURL_CA_BUNDLE                     replace  curl, Python requests
//	GIT_SSL_CAINFO                     replace  git
//	PIP_CERT                           replace  pip
//	CARGO_HTTP_CAINFO                  replace  cargo
//	AWS_CA_BUNDLE                      replace  AWS CLI and SDKs
//	CLOUDSDK_CORE_CUSTOM_CA_CERTS_FILE replace  gcloud
//	HTTPLIB2_CA_CERTS                  replace  Python httplib2
//	GRPC_DEFAULT_SSL_ROOTS_FILE_PATH   replace  gRPC C core: C++, Python, Ruby, PHP
//	npm_config_cafile                  replace  npm, pnpm, yarn 1
//	YARN_HTTPS_CA_FILE_PATH            replace  yarn 2 and later
//	BUNDLE_SSL_CA_CERT                 replace  Bundler
//	COMPOSER_CAFILE                    replace  Composer
//	HEX_CACERTS_PATH                   replace  Hex
//	PERL_LWP_SSL_CA_FILE               replace  Perl LWP
//	JULIA_SSL_CA_ROOTS_PATH            replace  Julia
//	NODE_EXTRA_CA_CERTS                add      Node, Bun, Electron
//	DENO_CERT                          add      Deno
//	JAVA_TOOL_OPTIONS                  java     every JVM, Gradle's and Maven's own among them
func trustVariables() []trustVariable {
	return []trustVariable{
		{"SSL_CERT_FILE", trustReplace},
		{"NIX_SSL_CERT_FILE", trustReplace},
		{"REQUESTS_CA_BUNDLE", trustReplace},
		{"CURL_CA_BUNDLE", trustReplace},
		{"GIT_SSL_CAINFO", trustReplace},
		{"PIP_CERT", trustReplace},
		{"CARGO_HTTP_CAINFO", trustReplace},
		{"AWS_CA_BUNDLE", trustReplace},
		{"CLOUDSDK_CORE_CUSTOM_CA_CERTS_FILE", trustReplace},
		{"HTTPLIB2_CA_CERTS", trustReplace},
		{"GRPC_DEFAULT_SSL_ROOTS_FILE_PATH", trustReplace},
		{"npm_config_cafile", trustReplace},
		{"YARN_HTTPS_CA_FILE_PATH", trustReplace},
		{"BUNDLE_SSL_CA_CERT", trustReplace},
		{"COMPOSER_CAFILE", trustReplace},
		{"HEX_CACERTS_PATH", trustReplace},
		{"PERL_LWP_SSL_CA_FILE", trustReplace},
		{"JULIA_SSL_CA_ROOTS_PATH", trustReplace},
		{"NODE_EXTRA_CA_CERTS", trustAdd},
		{"DENO_CERT", trustAdd},
		{"JAVA_TOOL_OPTIONS", trustJava},
	}
}

// Environment returns the variables that make the clients of a sandbox trust
// the CA. A caller that already has JAVA_TOOL_OPTIONS joins the two with a
// space.
func (t Trust) Environment() map[string]string {
	out := make(map[string]string)
	for _, v := range trustVariables() {
		switch v.kind {
		case trustReplace:
			out[v.name] = t.Bundle
		case trustAdd:
			out[v.name] = t.CA
		case trustJava:
			out[v.name] = t.javaOptions()
		}
	}
	return out
}

// javaOptions returns the options that point a JVM to the trust store. The
// JVM splits the variable at white space and honours quotes.
func (t Trust) javaOptions() string {
	path := t.Java
	if strings.ContainsAny(path, " \t") {
		path = `"` + path + `"`
	}
	return "-Djavax.net.ssl.trustStore=" + path +
		" -Djavax.net.ssl.trustStoreType=PKCS12" +
		" -Djavax.net.ssl.trustStorePassword=" + trustStorePassword
}

// EnvScript returns lines for a POSIX shell that export the variables, in the
// order of their names. A name that no shell accepts, and a value that no
// environment can hold, are left out.
func EnvScript(env map[string]string) []byte {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(env)) {
		if !shellName(name) || strings.ContainsRune(env[name], 0) {
			continue
		}
		b.WriteString("export " + name + "=" + shellQuote(env[name]) + "\n")
	}
	return []byte(b.String())
}

// shellQuote puts s in single quotes, in which only the quote itself ends them.
func shellQuote(s string) string {
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

func shellName(s string) bool {
	for i := range len(s) {
		c := s[i]
		letter := c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
		if !letter && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return s != ""
}
