#!/bin/sh
# Builds the Debian package from a binary:
#   build.sh BINARY VERSION FOLDER
set -eu

binary=${1:?the static binary} version=${2:?a version} folder=${3:?a folder for the package}
here=$(dirname "$0")
# Debian's versions begin with a digit.
version=$(printf %s "$version" | sed 's/^v//; s/-/+/g')
case $version in [0-9]*) ;; *) version=0~$version ;; esac
architecture=${ARCHITECTURE:-$(dpkg --print-architecture)}
export SOURCE_DATE_EPOCH="${SOURCE_DATE_EPOCH:-0}"

root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
chmod 0755 "$root"
install -D -m 0755 "$binary" "$root/usr/bin/sallyport"
for unit in sallyport.service sallyport-lock.service; do
	install -D -m 0644 "$here/../systemd/$unit" "$root/lib/systemd/system/$unit"
done
install -D -m 0644 "$here/sallyport.hcl" "$root/etc/sallyport/sallyport.hcl"
install -d -m 0755 "$root/etc/sallyport/policy.d" "$root/usr/share/doc/sallyport"
install -m 0644 "$here/copyright" "$here/../../README.md" "$root/usr/share/doc/sallyport/"

"$binary" docs "$root/docs"
install -d "$root/usr/share/man/man1"
for page in "$root"/docs/man1/*.1; do
	gzip -9n <"$page" >"$root/usr/share/man/man1/$(basename "$page").gz"
done
install -D -m 0644 "$root/docs/completions/bash" "$root/usr/share/bash-completion/completions/sallyport"
install -D -m 0644 "$root/docs/completions/zsh" "$root/usr/share/zsh/vendor-completions/_sallyport"
install -D -m 0644 "$root/docs/completions/fish" "$root/usr/share/fish/vendor_completions.d/sallyport.fish"
rm -r "$root/docs"

install -d "$root/DEBIAN"
echo /etc/sallyport/sallyport.hcl >"$root/DEBIAN/conffiles"
for script in postinst prerm postrm; do
	install -m 0755 "$here/$script" "$root/DEBIAN/$script"
done
cat >"$root/DEBIAN/control" <<CONTROL
Package: sallyport
Version: $version
Architecture: $architecture
Maintainer: sallyport maintainers <maintainers@sallyport.example>
Installed-Size: $(du -sk --apparent-size --exclude=DEBIAN "$root" | cut -f1)
Recommends: ca-certificates
Suggests: docker.io | podman
Section: net
Priority: optional
Description: only way out of a sandbox
 A DNS server and an intercepting HTTPS proxy that stand where the network of a
 sandbox would be. It decides each name, connection and request by policy, puts
 real secrets in the place of placeholders, and records every attempt.
CONTROL
(cd "$root" && find . -type f ! -path './DEBIAN/*' -printf '%P\0' | sort -z | xargs -0 md5sum >DEBIAN/md5sums)
find "$root" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +

mkdir -p "$folder"
dpkg-deb --root-owner-group --build "$root" "$folder/sallyport_${version}_$architecture.deb"
