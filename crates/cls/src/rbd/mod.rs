//! `rbd`: what librbd keeps in objects other than an image's data.
//!
//! Which object each method is for, and its arguments, stand at the methods; the
//! names of omap keys are Ceph's, since clients read some objects themselves.
//! Where a method of Ceph cannot see what it wrote itself, and its answer depends
//! on that, the order of steps here makes up for it.
//!
//! Source: Ceph 16.2 `src/cls/rbd/cls_rbd.cc`.

mod bit_vector;
mod data;
mod directory;
mod features;
mod group;
mod image;
mod metadata;
mod migration;
mod mirror;
mod namespace;
mod object_map;
mod old_format;
mod parents;
mod snapshots;
mod stored;
#[cfg(test)]
mod tests;
mod trash;
mod types;

use crate::{Access, Method, Object, Output};
use bytes::Bytes;

const fn read(name: &'static str, run: fn(&mut dyn Object, Bytes) -> Output) -> Method {
    Method { name, access: Access::Read, run }
}

const fn change(name: &'static str, run: fn(&mut dyn Object, Bytes) -> Output) -> Method {
    Method { name, access: Access::ReadWrite, run }
}

const fn write(name: &'static str, run: fn(&mut dyn Object, Bytes) -> Output) -> Method {
    Method { name, access: Access::Write, run }
}

pub(crate) const METHODS: &[Method] = &[
    // header of an image, and its id
    change("create", image::create),
    read("get_features", image::get_features),
    change("set_features", image::set_features),
    read("get_all_features", image::get_all_features),
    read("get_size", image::get_size),
    change("set_size", image::set_size),
    read("get_flags", image::get_flags),
    change("set_flags", image::set_flags),
    read("op_features_get", image::op_features_get),
    change("op_features_set", image::op_features_set),
    read("get_object_prefix", image::get_object_prefix),
    read("get_data_pool", image::get_data_pool),
    read("get_stripe_unit_count", image::get_stripe_unit_count),
    change("set_stripe_unit_count", image::set_stripe_unit_count),
    read("get_create_timestamp", image::get_create_timestamp),
    read("get_access_timestamp", image::get_access_timestamp),
    read("get_modify_timestamp", image::get_modify_timestamp),
    change("set_access_timestamp", image::set_access_timestamp),
    change("set_modify_timestamp", image::set_modify_timestamp),
    read("get_id", image::get_id),
    change("set_id", image::set_id),
    // snapshots
    read("get_snapcontext", snapshots::get_snapcontext),
    read("get_snapshot_name", snapshots::get_snapshot_name),
    read("get_snapshot_timestamp", snapshots::get_snapshot_timestamp),
    read("snapshot_get", snapshots::snapshot_get),
    change("snapshot_add", snapshots::snapshot_add),
    change("snapshot_remove", snapshots::snapshot_remove),
    change("snapshot_rename", snapshots::snapshot_rename),
    change("snapshot_trash_add", snapshots::snapshot_trash_add),
    read("snapshot_get_limit", snapshots::snapshot_get_limit),
    change("snapshot_set_limit", snapshots::snapshot_set_limit),
    read("get_protection_status", snapshots::get_protection_status),
    change("set_protection_status", snapshots::set_protection_status),
    // parents and children
    read("parent_get", parents::parent_get),
    read("parent_overlap_get", parents::parent_overlap_get),
    change("parent_attach", parents::parent_attach),
    change("parent_detach", parents::parent_detach),
    read("get_parent", parents::get_parent),
    change("set_parent", parents::set_parent),
    change("remove_parent", parents::remove_parent),
    change("child_attach", parents::child_attach),
    change("child_detach", parents::child_detach),
    read("children_list", parents::children_list),
    change("add_child", parents::add_child),
    change("remove_child", parents::remove_child),
    read("get_children", parents::get_children),
    // metadata
    read("metadata_list", metadata::metadata_list),
    change("metadata_set", metadata::metadata_set),
    change("metadata_remove", metadata::metadata_remove),
    read("metadata_get", metadata::metadata_get),
    // directory of images
    read("dir_get_id", directory::dir_get_id),
    read("dir_get_name", directory::dir_get_name),
    read("dir_list", directory::dir_list),
    change("dir_add_image", directory::dir_add_image),
    change("dir_remove_image", directory::dir_remove_image),
    change("dir_rename_image", directory::dir_rename_image),
    read("dir_state_assert", directory::dir_state_assert),
    change("dir_state_set", directory::dir_state_set),
    // object maps
    read("object_map_load", object_map::object_map_load),
    change("object_map_save", object_map::object_map_save),
    change("object_map_resize", object_map::object_map_resize),
    change("object_map_update", object_map::object_map_update),
    change("object_map_snap_add", object_map::object_map_snap_add),
    change("object_map_snap_remove", object_map::object_map_snap_remove),
    // data objects
    change("copyup", data::copyup),
    change("sparse_copyup", data::sparse_copyup),
    change("assert_snapc_seq", data::assert_snapc_seq),
    change("sparsify", data::sparsify),
    // trash, namespaces
    change("trash_add", trash::trash_add),
    change("trash_remove", trash::trash_remove),
    read("trash_list", trash::trash_list),
    read("trash_get", trash::trash_get),
    change("trash_state_set", trash::trash_state_set),
    change("namespace_add", namespace::namespace_add),
    change("namespace_remove", namespace::namespace_remove),
    read("namespace_list", namespace::namespace_list),
    // groups
    read("group_dir_list", directory::dir_list),
    change("group_dir_add", directory::dir_add_image),
    change("group_dir_remove", directory::dir_remove_image),
    change("group_dir_rename", directory::dir_rename_image),
    change("group_image_set", group::group_image_set),
    change("group_image_remove", group::group_image_remove),
    read("group_image_list", group::group_image_list),
    change("image_group_add", group::image_group_add),
    change("image_group_remove", group::image_group_remove),
    read("image_group_get", group::image_group_get),
    change("group_snap_set", group::group_snap_set),
    change("group_snap_remove", group::group_snap_remove),
    read("group_snap_get_by_id", group::group_snap_get_by_id),
    read("group_snap_list", group::group_snap_list),
    // migration
    change("migration_set", migration::migration_set),
    change("migration_set_state", migration::migration_set_state),
    read("migration_get", migration::migration_get),
    change("migration_remove", migration::migration_remove),
    // mirroring
    read("mirror_uuid_get", mirror::mirror_uuid_get),
    change("mirror_uuid_set", mirror::mirror_uuid_set),
    read("mirror_mode_get", mirror::mirror_mode_get),
    change("mirror_mode_set", mirror::mirror_mode_set),
    change("mirror_peer_ping", mirror::mirror_peer_ping),
    read("mirror_peer_list", mirror::mirror_peer_list),
    change("mirror_peer_add", mirror::mirror_peer_add),
    change("mirror_peer_remove", mirror::mirror_peer_remove),
    change("mirror_peer_set_client", mirror::mirror_peer_set_client),
    change("mirror_peer_set_cluster", mirror::mirror_peer_set_cluster),
    change("mirror_peer_set_direction", mirror::mirror_peer_set_direction),
    read("mirror_instances_list", mirror::mirror_instances_list),
    change("mirror_instances_add", mirror::mirror_instances_add),
    change("mirror_instances_remove", mirror::mirror_instances_remove),
    read("mirror_image_list", mirror::mirror_image_list),
    read("mirror_image_get_image_id", mirror::mirror_image_get_image_id),
    read("mirror_image_get", mirror::mirror_image_get),
    change("mirror_image_set", mirror::mirror_image_set),
    change("mirror_image_remove", mirror::mirror_image_remove),
    read("mirror_image_map_list", mirror::mirror_image_map_list),
    write("mirror_image_map_update", mirror::mirror_image_map_update),
    write("mirror_image_map_remove", mirror::mirror_image_map_remove),
    change("mirror_image_snapshot_unlink_peer", mirror::mirror_image_snapshot_unlink_peer),
    change("mirror_image_snapshot_set_copy_progress", mirror::mirror_image_snapshot_set_copy_progress),
    change("mirror_image_status_set", mirror::mirror_image_status_set),
    change("mirror_image_status_remove", mirror::mirror_image_status_remove),
    read("mirror_image_status_get", mirror::mirror_image_status_get),
    read("mirror_image_status_list", mirror::mirror_image_status_list),
    read("mirror_image_status_get_summary", mirror::mirror_image_status_get_summary),
    change("mirror_image_status_remove_down", mirror::mirror_image_status_remove_down),
    read("mirror_image_instance_get", mirror::mirror_image_instance_get),
    read("mirror_image_instance_list", mirror::mirror_image_instance_list),
    // headers of the first format
    read("snap_list", old_format::snap_list),
    change("snap_add", old_format::snap_add),
    change("snap_remove", old_format::snap_remove),
    change("snap_rename", old_format::snap_rename),
];
