#!/bin/sh
# Makes the folder from which the image is built, without the network:
#   build.sh BINARY FOLDER && docker build -t sallyport FOLDER
set -eu

binary=${1:?the static binary} folder=${2:?a folder for the build}
roots=${SSL_ROOTS:-/etc/ssl/certs/ca-certificates.crt}

root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
install -D -m 0755 "$binary" "$root/usr/bin/sallyport"
install -D -m 0644 "$roots" "$root/etc/ssl/certs/ca-certificates.crt"
install -d -m 0755 "$root/etc/sallyport" "$root/run/sallyport"
install -d -m 0700 "$root/var/lib/sallyport"
install -d -m 1777 "$root/tmp"

mkdir -p "$folder"
tar --owner=0 --group=0 --numeric-owner --sort=name --mtime="@${SOURCE_DATE_EPOCH:-0}" -C "$root" -cf "$folder/rootfs.tar" .
cp "$(dirname "$0")/Dockerfile" "$folder/"
