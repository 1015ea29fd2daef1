#!/usr/bin/env python3
"""MuJoCo Warp's cases: simulations of many worlds on the device, compared with MuJoCo on the CPU."""
import os
import sys

import mujoco
import mujoco_warp
import numpy
import warp

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from cases import case, close, equal, main  # noqa: E402

WORLDS, STEPS = 3, 20
MODEL = mujoco.MjModel.from_xml_string("""<mujoco><option timestep="0.005"/>
<worldbody>
  <geom type="plane" size="5 5 .1"/>
  <body pos="0 0 .12"><freejoint/><geom type="sphere" size=".1" mass="1"/></body>
  <body pos="1 0 1">
    <joint name="shoulder" type="hinge" axis="0 1 0"/><geom type="capsule" fromto="0 0 0 .5 0 0" size=".04"/>
    <body pos=".5 0 0">
      <joint type="hinge" axis="0 1 0" damping=".1"/><geom type="capsule" fromto="0 0 0 .4 0 0" size=".03"/>
    </body>
  </body>
</worldbody>
<actuator><motor joint="shoulder" gear="2"/></actuator></mujoco>""")
warp.config.quiet = True
warp.init()
if not warp.get_preferred_device().is_cuda:
    sys.exit("Warp has not taken the GPU")


def start():
    """The state on the CPU, and the same of all worlds on the device."""
    on_cpu = mujoco.MjData(MODEL)
    on_cpu.ctrl[:] = 0.3
    mujoco.mj_forward(MODEL, on_cpu)
    return on_cpu, mujoco_warp.put_model(MODEL), mujoco_warp.put_data(MODEL, on_cpu, nworld=WORLDS)


@case
def forward_dynamics():
    on_cpu, model, data = start()
    mujoco_warp.forward(model, data)
    for world in range(WORLDS):
        close(data.xpos.numpy()[world], on_cpu.xpos)
        close(data.qacc.numpy()[world], on_cpu.qacc, 1e-3)


@case
def steps():
    on_cpu, model, data = start()
    for _ in range(STEPS):
        mujoco_warp.step(model, data)
        mujoco.mj_step(MODEL, on_cpu)
    for world in range(WORLDS):
        close(data.qpos.numpy()[world], on_cpu.qpos, 1e-4)
        close(data.qvel.numpy()[world], on_cpu.qvel, 1e-3)
    close(data.time.numpy(), numpy.full(WORLDS, STEPS * MODEL.opt.timestep))


@case
def ball_comes_to_rest_on_the_floor():
    on_cpu, model, data = start()
    for _ in range(40):
        mujoco_warp.step(model, data)
        mujoco.mj_step(MODEL, on_cpu)
    equal(data.nacon.numpy()[0], WORLDS * on_cpu.ncon)
    assert on_cpu.ncon == 1, on_cpu.ncon
    close(data.qpos.numpy()[:, 2], numpy.full(WORLDS, on_cpu.qpos[2]), 1e-3)


@case
def worlds_that_differ():
    _, model, data = start()
    forces = numpy.array([[-1], [0], [1]], dtype=numpy.float32)
    data.ctrl.assign(forces)
    for _ in range(STEPS):
        mujoco_warp.step(model, data)
    for world, force in enumerate(forces):
        on_cpu = mujoco.MjData(MODEL)
        on_cpu.ctrl[:] = force
        for _ in range(STEPS):
            mujoco.mj_step(MODEL, on_cpu)
        close(data.qpos.numpy()[world], on_cpu.qpos, 1e-4)


@case
def captured_steps():
    on_cpu, model, data = start()
    mujoco_warp.step(model, data)  # Compiles outside of the capture.
    mujoco.mj_step(MODEL, on_cpu)
    with warp.ScopedCapture() as capture:
        mujoco_warp.step(model, data)
    for _ in range(STEPS):
        warp.capture_launch(capture.graph)
        mujoco.mj_step(MODEL, on_cpu)
    close(data.qpos.numpy()[0], on_cpu.qpos, 1e-4)


if __name__ == "__main__":
    main()
