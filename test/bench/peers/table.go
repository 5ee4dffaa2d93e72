//go:build linux

package peers

import (
	"fmt"
	"strings"

	"sallyport/test/bench/load"
	"sallyport/test/bench/origin"
)

// names is how many names the name servers know.
const names = 100_000

// RuleName is the i-th of them.
func RuleName(i int) string { return fmt.Sprintf("n%d.rules.bench.test", i) }

// address is a peer that is connected to by its address.
func address(port int) load.Target {
	return load.Target{Mode: load.ByAddress, Address: fmt.Sprintf("@G:%d", port)}
}

func connect(port int) load.Target {
	return load.Target{Mode: load.ByConnect, Address: fmt.Sprintf("@G:%d", port)}
}

// Others are the peers that are not sallyport, by name.
func Others() []*Peer {
	trust := []string{"SSL_CERT_FILE=@W/origin.crt"}
	gp := func(name string, port int, flags ...string) *Peer {
		return &Peer{Name: name, Target: connect(port), Roots: "@W/proxy.crt", env: trust,
			argv: append([]string{"@B", "goproxy", "@W", fmt.Sprintf("@G:%d", port)}, flags...)}
	}
	return []*Peer{
		{Name: "direct", Target: load.Target{Mode: load.ByAddress, Address: origin.Address + ":443"}, Roots: "@W/origin.crt"},
		{Name: "splice", Target: address(7001), Roots: "@W/origin.crt", argv: []string{"@B", "relay", "@G:7001", origin.Address + ":443"}},
		nginx(7002),
		haproxy(7003),
		squid(7004),
		mitmproxy(7005),
		gp("goproxy", 7006, "cached"),
		gp("goproxy-default", 7007),
		gp("goproxy-h2", 7008, "cached", "h2"),
		{Name: "nethttp", Target: address(7009), Roots: "@W/proxy.crt", env: trust, argv: []string{"@B", "nethttp", "@W", "@G:7009"}},
		dnsmasq(5301),
		unbound(5302),
	}
}

func nginx(port int) *Peer {
	return &Peer{Name: "nginx", Target: address(port), Roots: "@W/proxy.crt", argv: []string{"/usr/sbin/nginx", "-e", "@D/error.log", "-c", "@D/nginx.conf"},
		files: map[string]string{"nginx.conf": fmt.Sprintf(`daemon off;
user root;
worker_processes 2;
worker_rlimit_nofile 32768;
pid @D/pid;
error_log @D/error.log;
events { worker_connections 8192; }
http {
  access_log off;
  client_body_temp_path @D/body;
  proxy_temp_path @D/proxy;
  fastcgi_temp_path @D/fastcgi;
  uwsgi_temp_path @D/uwsgi;
  scgi_temp_path @D/scgi;
  client_max_body_size 0;
  keepalive_requests 1000000000;
  keepalive_timeout 600s;
  ssl_session_cache shared:sessions:10m;
  ssl_protocols TLSv1.2 TLSv1.3;
  upstream origin {
    server %s:443;
    keepalive 512;
    keepalive_requests 1000000000;
  }
  server {
    listen @G:%d ssl http2 backlog=4096;
    ssl_certificate @W/names.crt;
    ssl_certificate_key @W/names.key;
    location / {
      proxy_pass https://origin;
      proxy_http_version 1.1;
      proxy_set_header Connection "";
      proxy_set_header Host $host;
      proxy_ssl_server_name on;
      proxy_ssl_name $host;
      proxy_ssl_protocols TLSv1.2 TLSv1.3;
      proxy_ssl_verify on;
      proxy_ssl_trusted_certificate @W/origin.crt;
      proxy_request_buffering off;
      proxy_buffering off;
      proxy_buffer_size 64k;
      proxy_buffers 8 64k;
      proxy_busy_buffers_size 128k;
      proxy_max_temp_file_size 0;
    }
  }
}
`, origin.Address, port)}}
}

func haproxy(port int) *Peer {
	return &Peer{Name: "haproxy", Target: address(port), Roots: "@W/proxy.crt", argv: []string{"/usr/sbin/haproxy", "-db", "-f", "@D/haproxy.cfg"},
		files: map[string]string{"haproxy.cfg": fmt.Sprintf(`global
  nbthread 2
  maxconn 8000
  tune.ssl.ssl-ctx-cache-size 8192
  ssl-server-verify required
defaults
  mode http
  timeout connect 5s
  timeout client 600s
  timeout server 600s
  http-reuse always
frontend front
  bind @G:%d ssl crt @W/names.pem generate-certificates ca-sign-file @W/proxy.pem alpn h2,http/1.1
  default_backend back
backend back
  server origin %s:443 ssl verify required ca-file @W/origin.crt sni req.hdr(host) pool-max-conn 2000
`, port, origin.Address)}}
}

func squid(port int) *Peer {
	return &Peer{Name: "squid", Target: connect(port), Roots: "@W/proxy.crt", argv: []string{"/usr/sbin/squid", "-N", "-f", "@D/squid.conf"},
		prepare: []string{"sh", "-c", "rm -rf @D/certs && /usr/lib/squid/security_file_certgen -c -s @D/certs -M 64MB && chown -R proxy @D"},
		files: map[string]string{"squid.conf": fmt.Sprintf(`http_port @G:%d ssl-bump tls-cert=@W/proxy.pem generate-host-certificates=on dynamic_cert_mem_cache_size=64MB
sslcrtd_program /usr/lib/squid/security_file_certgen -s @D/certs -M 64MB
sslcrtd_children 4 startup=2 idle=1
ssl_bump bump all
tls_outgoing_options cafile=@W/origin.crt
dns_nameservers %s
http_access allow all
cache deny all
cache_mem 8 MB
access_log stdio:@D/access.log
cache_log @D/cache.log
pid_filename @D/squid.pid
coredump_dir @D
netdb_filename none
shutdown_lifetime 1 seconds
client_persistent_connections on
pconn_timeout 10 minutes
client_idle_pconn_timeout 10 minutes
max_filedescriptors 16384
pinger_enable off
visible_hostname squid.bench.test
`, port, origin.Resolver)}}
}

func mitmproxy(port int) *Peer {
	return &Peer{Name: "mitmproxy", Target: connect(port), Roots: "@W/proxy.crt",
		prepare: []string{"sh", "-c", "mkdir -p @D/conf && cp @W/proxy.pem @D/conf/mitmproxy-ca.pem"},
		argv: []string{"/usr/bin/mitmdump", "-q", "--listen-host", "@G", "-p", fmt.Sprint(port), "--set", "confdir=@D/conf",
			"--set", "ssl_verify_upstream_trusted_ca=@W/origin.crt", "--set", "stream_large_bodies=1m"}}
}

func dnsmasq(port int) *Peer {
	var hosts strings.Builder
	for i := range names {
		fmt.Fprintf(&hosts, "%s %s\n", origin.Address, RuleName(i))
	}
	return &Peer{Name: "dnsmasq", NoHTTP: true, Target: load.Target{DNS: fmt.Sprintf("@G:%d", port)}, files: map[string]string{"hosts": hosts.String()},
		argv: []string{"/usr/sbin/dnsmasq", "-k", "-C", "/dev/null", "--user=root", "--no-resolv", "--no-hosts", "--addn-hosts=@D/hosts",
			"--listen-address=@G", "--bind-interfaces", "-p", fmt.Sprint(port), "--pid-file=@D/pid"}}
}

func unbound(port int) *Peer {
	var zone strings.Builder
	for i := range names {
		fmt.Fprintf(&zone, "  local-data: \"%s. 60 A %s\"\n", RuleName(i), origin.Address)
	}
	return &Peer{Name: "unbound", NoHTTP: true, Target: load.Target{DNS: fmt.Sprintf("@G:%d", port)}, argv: []string{"/usr/sbin/unbound", "-d", "-c", "@D/unbound.conf"},
		files: map[string]string{"unbound.conf": fmt.Sprintf(`server:
  interface: @G
  port: %d
  num-threads: 2
  so-reuseport: yes
  chroot: ""
  username: ""
  directory: "@D"
  pidfile: "@D/pid"
  use-syslog: no
  logfile: "@D/log"
  do-ip6: no
  module-config: "iterator"
  access-control: 10.66.0.0/16 allow
  local-zone: "rules.bench.test." static
%sremote-control:
  control-enable: no
`, port, zone.String())}}
}
