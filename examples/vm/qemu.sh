#!/bin/sh
# Boots DISK behind the tap NAME: qemu.sh vm1 disk.qcow2 02:5a:00:00:05:02
# The monitor runs in the tap's namespace, and has no other network itself.
set -eu
name=$1 disk=$2 mac=$3
namespace=/run/netns/$name
[ -e "$namespace" ] || namespace=/run/sallyport/net/$name
exec nsenter --net="$namespace" qemu-system-x86_64 \
	-machine q35 -accel kvm -accel tcg -m "${MEMORY:-1024}" -nographic \
	-drive file="$disk",if=virtio \
	-netdev tap,id=n0,ifname="$name",script=no,downscript=no \
	-device virtio-net-pci,netdev=n0,mac="$mac"
