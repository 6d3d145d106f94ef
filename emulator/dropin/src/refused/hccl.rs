//! Functions `libhccl.so` exports and the table does not have, by what they return.

crate::export::refuse_all! {
    Hccl:
    status {
        HcclAicpuKernelLaunch HcclChannelAcquire HcclChannelAcquireWithConfig HcclChannelConfigCreate
        HcclChannelConfigDestroy HcclChannelConfigSetInt HcclChannelConfigSetStr HcclChannelDescInit
        HcclChannelDestroy HcclChannelGetHcclBuffer HcclChannelGetRemoteMems HcclChannelQuery
        HcclCommGetHandleWithName HcclCommGetStatus HcclCommMemReg HcclCommRegCommStateCallback
        HcclCommSymWinDeregister HcclCommSymWinGet HcclCommSymWinRegister HcclCommWorkingDevNicSet HcclConfigGetInfo
        HcclDedicatedThreadAcquire HcclEngineCtxCopy HcclEngineCtxCreate HcclEngineCtxDestroy HcclEngineCtxGet
        HcclGetHcclBuffer HcclGetHcclBufferCleared HcclGroupEnd HcclGroupStart HcclGroupStatusGet
        HcclKernelLaunchCfgInit HcclOpDescInit HcclThreadAcquire HcclThreadAcquireWithConfig
        HcclThreadAcquireWithStream HcclThreadResGetInfo HcommChannelConfigCreate HcommChannelConfigDestroy
        HcommChannelConfigSetInt HcommChannelCreate HcommChannelCreateWithConfig HcommChannelDescInit
        HcommChannelDestroy HcommChannelGetStatus
    }
}
