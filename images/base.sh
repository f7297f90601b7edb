#!/bin/sh
# What every image gets, run on the host side: base.sh ROOT [SETUP]
# ROOT is the new root file system, SETUP a script to run inside it.
set -eu
root=$1
setup=${2:-}

# The users that commands run as: "user", and those that aliases of this image
# name. Written by hand: the image need not have useradd, and the result is the
# same on each day.
add_user() { # NAME UID
    echo "$1:x:$2:$2::/home/$1:/bin/bash" >>"$root/etc/passwd"
    echo "$1:x:$2:" >>"$root/etc/group"
    echo "$1:!:19000:0:99999:7:::" >>"$root/etc/shadow"
    [ ! -e "$root/etc/gshadow" ] || echo "$1:!::" >>"$root/etc/gshadow"
    cp -r "$root/etc/skel" "$root/home/$1"
    # Global npm packages belong to the user, like those of pip.
    [ ! -e "$root/usr/bin/npm" ] || echo 'prefix=~/.local' >"$root/home/$1/.npmrc"
    mkdir -p "$root/home/$1/.local/bin"
    chown -R "$2:$2" "$root/home/$1"
    chmod 755 "$root/home/$1"
}
add_user user 1000
add_user appuser 1001
add_user agent 1002
add_user sandbox 1003
mkdir -p "$root/workspace" "$root/mnt/user-data/uploads"
chown 1000:1000 "$root/workspace" "$root/mnt/user-data/uploads"

if [ -n "$setup" ]; then
    cp "$setup" "$root/tmp/setup"
    # It trusts whom the host trusts: a proxy may have an authority of its own.
    trusted=/etc/ssl/certs/ca-certificates.crt
    [ ! -e "$trusted" ] || cp "$trusted" "$root/tmp/trusted.crt"
    HOME=/root NODE_EXTRA_CA_CERTS=/tmp/trusted.crt chroot "$root" sh -eu /tmp/setup
    rm -f "$root/tmp/setup" "$root/tmp/trusted.crt"
fi

# What dpkg leaves out stays left out when a sandbox installs packages.
mv "$root/etc/dpkg/dpkg.cfg.d/99mmdebstrap" "$root/etc/dpkg/dpkg.cfg.d/agentbox"
# Some packages fail to install where these are missing.
for n in 1 2 3 4 5 6 7 8; do mkdir -p "$root/usr/share/man/man$n"; done

# Nothing of the host stays, and nothing that differs from day to day.
rm -f "$root/etc/apt/apt.conf.d/99mmdebstrap"
sed -i 's#//[^/@ ]*@#//#' "$root/etc/apt/sources.list"
[ -e "$root/usr/sbin/update-ca-certificates" ] || rm -f "$root/etc/ssl/certs/ca-certificates.crt"
: >"$root/etc/resolv.conf"
echo sandbox >"$root/etc/hostname"
chmod 644 "$root/etc/resolv.conf" "$root/etc/hostname"
rm -f "$root"/etc/passwd- "$root"/etc/group- "$root"/etc/shadow- "$root"/etc/gshadow- \
    "$root"/etc/.pwd.lock "$root"/etc/subuid- "$root"/etc/subgid-
sed -i 's/^\([^:]*:[^:]*\):[0-9]*:/\1:19000:/' "$root/etc/shadow"
rm -f "$root"/var/cache/debconf/*-old "$root"/var/lib/dpkg/*-old "$root"/var/cache/ldconfig/aux-cache
find "$root/var/log" -type f -exec truncate -s 0 {} +

# For the host: which packages there are, and the time of the newest file that
# came in one. No file of the image is to be younger; Python's compiled files
# hold the times of their sources, so those must stay as they are.
mkdir -p "$root/run/agentbox"
chroot "$root" dpkg-query -W -f '${Package} ${Version}\n' >"$root/run/agentbox/packages"
(cd "$root" && cat var/lib/dpkg/info/*.md5sums | sed 's/^[0-9a-f]*  //' | tr '\n' '\0' |
    xargs -0 stat -c %Y 2>/dev/null || true) | sort -n | tail -n 1 >"$root/run/agentbox/epoch"
