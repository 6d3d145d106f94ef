//! Models of images and text that contain a text tower.

/// A model of images and text that contains a text tower. The tower's keys are in the object
/// `text_config` of the file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tower {
    /// Name of the whole model in the list `architectures`.
    pub(crate) architecture: &'static str,
    /// Name of the whole model in the key `model_type`.
    pub(crate) model_type: &'static str,
    /// Values of required keys that published files leave out, as a JSON object.
    pub(crate) absent: &'static str,
}
