#!/bin/sh
# Installs the programs that the tests and the demo drive, where it can
# (Debian and its children, as root), and says which are missing where it
# cannot. With CI=true a missing one is an error.
set -eu

# program:package
all="gcc:gcc curl:curl git:git ssh-keygen:openssh-client python3:python3 node:nodejs npm:npm dig:dnsutils nc:netcat-openbsd nft:nftables ip:iproute2 ping:iputils-ping openssl:openssl nginx:nginx-light promtool:prometheus qemu-system-x86_64:qemu-system-x86 nsenter:util-linux busybox:busybox-static prometheus-alertmanager:prometheus-alertmanager rsyslogd:rsyslog dockerd:docker.io podman:podman runc:runc wget:wget ps:procps cargo:cargo javac:default-jdk-headless docker-compose:docker-compose groff:groff setpriv:util-linux git-lfs:git-lfs mvn:maven dpkg-scanpackages:dpkg-dev chromium-headless-shell:chromium-headless-shell mkfs.ext4:e2fsprogs skopeo:skopeo docker-registry:docker-registry systemd-analyze:systemd"
# What the benchmark compares with: installed where it is named.
bench="haproxy:haproxy squid:squid-openssl mitmdump:mitmproxy dnsmasq:dnsmasq-base unbound:unbound"
wanted=${*:-}

lacking() {
	for pair in $all ${wanted:+$bench}; do
		program=${pair%%:*}
		if [ -n "$wanted" ]; then
			case " $wanted " in *" $program "*) ;; *) continue ;; esac
		fi
		PATH=$PATH:/usr/sbin:/sbin command -v "$program" >/dev/null 2>&1 || echo "${pair##*:}"
	done
	if [ -z "$wanted" ]; then
		/usr/bin/python3 -c 'import requests' >/dev/null 2>&1 || echo python3-requests
		/usr/bin/python3 -c 'import boto3' >/dev/null 2>&1 || echo python3-boto3
		/usr/bin/python3 -c 'import requests_oauthlib' >/dev/null 2>&1 || echo python3-requests-oauthlib
		for module in httpx h2 aiohttp pycurl; do
			/usr/bin/python3 -c "import $module" >/dev/null 2>&1 || echo "python3-$module"
		done
		/usr/bin/python3 -c 'import grpc' >/dev/null 2>&1 || echo python3-grpcio
		/usr/bin/python3 -m pip --version >/dev/null 2>&1 || echo python3-pip
		[ -e /etc/ssl/certs/ca-certificates.crt ] || echo ca-certificates
		ls /usr/lib/*/rsyslog/lmnsd_ossl.so >/dev/null 2>&1 || echo rsyslog-openssl
	fi
}

# A mirror may hang up, and the system's own updates hold the lock.
again() { "$@" || { sleep 10; "$@"; } || { sleep 30; "$@"; }; }
apt() { again apt-get -q -o Acquire::Retries=3 -o DPkg::Lock::Timeout=120 "$@" >/dev/null; }

packages=$(lacking | sort -u | tr '\n' ' ')
if [ -n "$packages" ] && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
	echo "installing: $packages"
	export DEBIAN_FRONTEND=noninteractive
	# A service that a package starts is none of the tests' business.
	policy=/usr/sbin/policy-rc.d
	if [ ! -e "$policy" ]; then
		printf '#!/bin/sh\nexit 101\n' >"$policy"
		chmod +x "$policy"
		trap 'rm -f "$policy"' EXIT
	fi
	apt update
	# shellcheck disable=SC2086
	apt install -y --no-install-recommends $packages
fi
packages=$(lacking | sort -u | tr '\n' ' ')
if [ -n "$packages" ]; then
	echo "missing, to be installed with the system's package manager: $packages" >&2
	[ "${CI:-}" != true ] || exit 1
fi

# The kernel of the tests' virtual machine is unpacked, not installed: nothing
# here is to boot it but an emulator.
kernel=/var/cache/sallyport-test/kernel
if [ -z "$wanted" ] && ! ls "$kernel"/boot/vmlinuz-* >/dev/null 2>&1; then
	if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1 && [ "$(dpkg --print-architecture)" = amd64 ]; then
		apt update 2>/dev/null || true
		package=$(apt-cache depends linux-image-cloud-amd64 | sed -n 's/.*Depends: \(linux-image-[0-9].*\)/\1/p' | head -n 1)
		echo "unpacking: $package"
		dir=$(mktemp -d)
		chmod 755 "$dir"
		(cd "$dir" && apt download "$package" 2>/dev/null) || true
		mkdir -p "$kernel"
		for deb in "$dir"/*.deb; do
			[ -e "$deb" ] && dpkg-deb -x "$deb" "$kernel"
		done
		rm -rf "$dir"
	fi
	if ! ls "$kernel"/boot/vmlinuz-* >/dev/null 2>&1; then
		echo "missing: the Debian kernel linux-image-cloud-amd64, unpacked in $kernel" >&2
		[ "${CI:-}" != true ] || exit 1
	fi
fi

# What the tests of clients drive from the npm registry: the versions of the
# lock file, and none of the packages' own install scripts.
listed=$(dirname "$0")/clients/npm
modules=/var/cache/sallyport-test/npm
if [ -z "$wanted" ] && ! cmp -s "$listed/package-lock.json" "$modules/installed"; then
	if [ "$(id -u)" = 0 ] && command -v npm >/dev/null 2>&1; then
		echo "installing in $modules: what $listed/package.json lists"
		rm -rf "$modules"
		mkdir -p "$modules"
		cp "$listed/package.json" "$listed/package-lock.json" "$modules/"
		if (cd "$modules" && again npm ci --ignore-scripts --no-audit --no-fund --no-update-notifier >/dev/null); then
			cp "$listed/package-lock.json" "$modules/installed"
		fi
	fi
	if ! [ -e "$modules/installed" ]; then
		echo "missing: what $listed/package.json lists, installed in $modules" >&2
		[ "${CI:-}" != true ] || exit 1
	fi
fi
